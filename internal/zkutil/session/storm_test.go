package session_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A server that accepts the session and then cuts, as a proxy or a frame limit may
// do, is not dialled without a pause.
func TestNoReconnectStorm(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.Put("/node", nil)
		_, err := s.Watch(t.Context(), "/node")
		require.NoError(t, err)
		const limit = 500
		var dials atomic.Int64
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			return fixture.Cut(r.Op == zktest.OpSetWatches && dials.Add(1) < limit, zktest.ReplyLost)
		})
		srv.Disconnect()
		fixture.Pass(10 * time.Second)
		require.Less(t, dials.Load(), int64(limit), "dials in ten seconds")
	})
}

// Ten thousand attempts that came and went leave one watch on the znode ahead.
func TestWatchesAreShared(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s, other := fixture.Connect(t, srv.Config(time.Hour)), fixture.Connect(t, srv.Config(time.Hour))
		e := fixture.Acquire(t, fixture.MutexOn(other, "/m"))
		for range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := fixture.MutexOn(s, "/m").Acquire(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		fixture.Pass(time.Second)
		require.Equal(t, session.Tables{Watches: 1}, s.Tables())
		watched := 0
		for _, r := range srv.Log.Requests(zktest.OpGetData) {
			if r.Session == fixture.SessionID(s) && r.Path == e.Path() {
				watched++
			}
		}
		require.Equal(t, 1, watched)
		require.NoError(t, e.Leave())
	})
}
