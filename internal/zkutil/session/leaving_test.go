package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Deletions that begin together are awaited for one operation timeout in all, or until the caller stops. A deletion that is
// finished by then is a success, even for a late question.
func TestDeletionsThatBeginTogether(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(60 * time.Second)
		s := fixture.Connect(t, cfg)
		first, second := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire), bubble.Acquire(t, fixture.MutexOn(s, "/n").Acquire)
		srv.Stop()
		start := time.Now()
		one, other := first.BeginLeave(), second.BeginLeave()
		require.ErrorIs(t, context.Cause(first.Context()), zkutil.ErrReleased)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, one.Await(ctx.Done()))
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, one.Await(nil), zkutil.ErrNodeNotDeleted)
		require.ErrorIs(t, other.Await(nil), zkutil.ErrNodeNotDeleted)
		require.Equal(t, cfg.OperationTimeout, time.Since(start))
		srv.Restart()
		bubble.Pass(10 * time.Second)
		require.NoError(t, one.Await(nil))
		require.NoError(t, other.Await(nil))
		require.ErrorIs(t, first.BeginLeave().Await(nil), zkutil.ErrNotHeld)
	})
}
