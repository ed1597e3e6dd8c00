package recipe_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Beside a function of Do that goes on after a loss another contender may work: so that is reported, after a second and then
// every minute.
func TestFunctionOfDoThatGoesOnAfterALoss(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		client := f.Client(recipes.WithLogger(log.Logger(slog.LevelWarn)), recipes.WithID("web-1"))
		err := f.Mutex(client).Do(f.Context(), func(ctx context.Context, lease *recipes.Lease) error {
			f.Srv.Delete(lease.Path())
			<-ctx.Done()
			require.Len(f, locks.TakeLog(log), 1, "the loss")
			bubble.Pass(time.Second - bubble.Moment - time.Millisecond)
			require.Empty(f, log.Take())
			bubble.Pass(2*time.Minute + time.Millisecond)
			lines := log.Take()
			require.Len(f, lines, 3)
			for i, overrun := range []string{"1s", "1m1s", "2m1s"} {
				require.Regexp(f, `^level=WARN msg="work goes on after its term" path=/locks/a token=\d+ id=web-1 for=`+overrun+
					` cause="znode deleted by someone else"$`, lines[i])
			}
			return nil
		})
		require.ErrorIs(f, err, recipes.ErrNodeDeleted)
		bubble.Pass(10 * time.Minute)
		require.Empty(f, log.Take())
	})
}

// A function that has released its lease by itself may go on, and one whose context has ended while it holds the lock keeps
// others out.
func TestFunctionOfDoThatGoesOnWithoutALoss(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		m := f.Mutex(f.Client(recipes.WithLogger(log.Logger(slog.LevelWarn)), recipes.WithSlowWait(0)))
		require.NoError(f, m.Do(f.Context(), func(_ context.Context, lease *recipes.Lease) error {
			require.NoError(f, lease.Release())
			bubble.Pass(10 * time.Minute)
			return nil
		}))
		ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
		defer cancel()
		require.NoError(f, m.Do(ctx, func(_ context.Context, lease *recipes.Lease) error {
			bubble.Pass(10 * time.Minute)
			f.Stands(lease)
			return nil
		}))
		require.Empty(f, log.Take())
	})
}
