package multilock_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
)

// A function that continues after the loss of one of its locks is reported once, with the path of that lock.
func TestFunctionThatContinuesAfterTheLossOfAPart(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		log := &testkit.Log{}
		m := mutexes(b, b.Client(recipes.WithLogger(log.Logger(slog.LevelWarn))))
		err := m.Do(b.Context(), func(ctx context.Context, lease *multilock.Lease) error {
			b.Srv.Delete(lease.Leases()[1].Path())
			<-ctx.Done()
			bubble.Pass(2 * time.Second)
			lines := log.Take()
			require.Len(b, lines, 2)
			require.Contains(b, lines[0], `msg="lease lost" path=`+all[1])
			require.Regexp(b, `^level=WARN msg="work still running after its term ended" path=`+all[1]+` token=\d+ id=\S+ for=1s cause="znode deleted by another client"$`, lines[1])
			return nil
		})
		require.ErrorIs(b, err, recipes.ErrNodeDeleted)
	})
}
