package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

// The bound counts for each path, from its grant, also for a read lock acquired under the write lock.
func TestMaxHold(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		const maxHold = 10 * time.Second
		read, write := locks.ReadWrite(b, b.Client(), rwlock.WithMaxHold(maxHold))
		writer := bubble.Acquire(b, write.Acquire)
		bubble.Pass(maxHold / 2)
		reader, err := read.Acquire(writer.Context())
		require.NoError(b, err)
		bubble.Pass(maxHold / 2)
		require.ErrorIs(b, b.Cause(writer), recipes.ErrMaxHold)
		b.Stands(reader)
		bubble.Pass(maxHold / 2)
		require.ErrorIs(b, b.Cause(reader), recipes.ErrMaxHold)
		b.Release(writer, reader)
		require.Empty(b, b.Queue(locks.Path))
		_, err = rwlock.New(b.Client(), locks.Path, rwlock.WithMaxHold(0))
		require.ErrorIs(b, err, recipes.ErrInvalidArgument)
	})
}
