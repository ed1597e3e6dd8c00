package session_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// read is a call of a recipe.
func read(ctx context.Context, s *session.Session, path string) error {
	_, err := s.Request(ctx, wire.Request{Op: proto.OpGetData, Path: path})
	return err
}

func TestCallWaitsForTheConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.Stop(srv.A)
		synctest.Wait()
		go func() {
			bubble.Pause(5 * time.Second)
			srv.Restart(srv.A)
		}()
		start := time.Now()
		require.NoError(t, read(t.Context(), s, "/"))
		require.InDelta(t, 5500*time.Millisecond, time.Since(start), float64(600*time.Millisecond))
	})
}

func TestCallIsBoundedByItsContext(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.Stop(srv.A)
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.ErrorIs(t, read(ctx, s, "/"), context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(start))

		cause := fixture.ErrBroken
		canceled, stop := context.WithCancelCause(t.Context())
		stop(cause)
		err := read(canceled, s, "/")
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, cause, "the cause can be found too")
	})
}

func TestCallIsBoundedByTheOperationTimeout(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.Stop(srv.A)
		synctest.Wait()
		start := time.Now()
		err := read(t.Context(), s, "/")
		require.ErrorIs(t, err, zkutil.ErrUnavailable)
		require.ErrorContains(t, err, "connection refused", "and says why")
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}

// A call in flight is abandoned by its context at once.
func TestCallInFlightIsBoundedByItsContext(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.Once(zktest.OpGetData, zktest.Fault{Delay: 4 * time.Second})
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, read(ctx, s, "/"), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
	})
}

// zk.Conn sends its queued requests in the next session. Nothing of ours may be in its queue while there is no
// connection.
func TestNothingCrossesSessions(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		old := fixture.SessionID(s)
		srv.Stop(srv.A)
		synctest.Wait()
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, _ = s.Request(ctx, wire.Request{Op: proto.OpCreate, Path: "/stray-", Flags: zk.FlagEphemeralSequential, ACL: s.Config().ACL})
			})
		}
		calls.Wait()
		bubble.Pass(5 * time.Second) // the session is over by now
		srv.Restart(srv.A)
		bubble.Eventually(t, 5*time.Second, func() bool { return s.State() == connstate.Connected })
		bubble.Pass(time.Second)
		require.NotEqual(t, old, fixture.SessionID(s))
		require.Empty(t, srv.Log.Requests(zktest.OpCreate, zktest.OpCreate2))
	})
}

// The gate opens with the new session, once for all that wait.
func TestManyCallsAcrossAReconnect(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.Stop(srv.A)
		synctest.Wait()
		var calls sync.WaitGroup
		for range 500 {
			calls.Go(func() {
				if err := read(t.Context(), s, "/"); err != nil {
					t.Error(err)
				}
			})
		}
		bubble.Pass(3 * time.Second)
		srv.Restart(srv.A)
		calls.Wait()
		require.Len(t, srv.Log.Requests(zktest.OpGetData), 500)
	})
}

func TestCallAfterClose(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		require.NoError(t, s.Close())
		require.ErrorIs(t, read(t.Context(), s, "/"), zkutil.ErrClosed)
		_, err := fixture.MutexOn(s, "/m").Acquire(t.Context())
		require.ErrorIs(t, err, zkutil.ErrClosed)
		_, err = fixture.MutexOn(s, "/m").TryAcquire(t.Context())
		require.ErrorIs(t, err, zkutil.ErrClosed)
		require.ErrorIs(t, queue.Revoke(t.Context(), s, "/m/x-lock-0000000000"), zkutil.ErrClosed)
	})
}

// askingContext is a context of the user that asks the session for its values.
type askingContext struct {
	context.Context //nolint:containedctx // a context

	s *session.Session
}

func (c askingContext) Value(key any) any {
	_ = c.s.State()
	return c.Context.Value(key)
}

// The user's contexts are asked for values under no lock.
func TestValuesOfAContextBeforeTheCredentials(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(6 * time.Second)
		cfg.Auth = []session.Auth{{Scheme: "digest", Credential: []byte("user:password")}}
		s, err := session.Open(cfg)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		e, err := fixture.MutexOn(s, "/m").Acquire(askingContext{t.Context(), s})
		require.NoError(t, err)
		require.NoError(t, e.Leave())
	})
}
