package zkutil

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// read is a call of a recipe.
func read(ctx context.Context, s *Session) error {
	_, err := do(ctx, s, request[node]{run: get("/")})
	return err
}

func TestCallWaitsForTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(30*time.Second))
		srv.Stop(srv.a)
		synctest.Wait()
		go func() {
			pass(5 * time.Second)
			srv.Restart(srv.a)
		}()
		start := time.Now()
		require.NoError(t, read(t.Context(), s))
		require.InDelta(t, 5500*time.Millisecond, time.Since(start), float64(600*time.Millisecond))
	})
}

func TestCallIsBoundedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(30*time.Second))
		srv.Stop(srv.a)
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.ErrorIs(t, read(ctx, s), context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(start))

		cause := errBroken
		canceled, stop := context.WithCancelCause(t.Context())
		stop(cause)
		err := read(canceled, s)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, cause, "the cause can be found too")
	})
}

func TestCallIsBoundedByTheOperationTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(30*time.Second))
		srv.Stop(srv.a)
		synctest.Wait()
		start := time.Now()
		err := read(t.Context(), s)
		require.ErrorIs(t, err, errUnavailable)
		require.ErrorContains(t, err, "connection refused", "and says why")
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}

// A call in flight is abandoned by its context at once.
func TestCallInFlightIsBoundedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(30*time.Second))
		srv.once(zktest.OpGetData, zktest.Fault{Delay: 4 * time.Second})
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, read(ctx, s), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
	})
}

// zk.Conn sends what it has queued in whatever session comes next. Nothing of ours
// may be in its queue while there is no connection.
func TestNothingCrossesSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		old := sessionID(s)
		srv.Stop(srv.a)
		synctest.Wait()
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, _ = do(ctx, s, request[string]{write: true, run: func(conn *zk.Conn) (string, error) {
					return conn.Create("/stray-", nil, zk.FlagEphemeralSequential, s.cfg.ACL)
				}})
			})
		}
		calls.Wait()
		pass(5 * time.Second) // the session is over by now
		srv.Restart(srv.a)
		eventually(t, 5*time.Second, func() bool { return s.State() == Connected })
		pass(time.Second)
		require.NotEqual(t, old, sessionID(s))
		require.Empty(t, srv.log.Requests(zktest.OpCreate))
	})
}

// The gate opens with the new session, once for all that wait.
func TestManyCallsAcrossAReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(30*time.Second))
		srv.Stop(srv.a)
		synctest.Wait()
		var calls sync.WaitGroup
		for range 500 {
			calls.Go(func() {
				if err := read(t.Context(), s); err != nil {
					t.Error(err)
				}
			})
		}
		pass(3 * time.Second)
		srv.Restart(srv.a)
		calls.Wait()
		require.Len(t, srv.log.Requests(zktest.OpGetData), 500)
	})
}

func TestCallAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		require.NoError(t, s.Close())
		require.ErrorIs(t, read(t.Context(), s), ErrClosed)
		_, err := mutexOn(s, "/m").Acquire(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		_, err = mutexOn(s, "/m").TryAcquire(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, s.Revoke(t.Context(), "/m/x-lock-0000000000"), ErrClosed)
	})
}
