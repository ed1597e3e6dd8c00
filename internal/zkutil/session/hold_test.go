package session_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

type valueKey struct{}

func TestReentryCostsNoRequestAndTheLastReleaseDeletes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		q := fixture.MutexOn(s, "/m")
		first := bubble.Acquire(t, q.Acquire)
		before := len(srv.Log.Requests())
		second, err := q.Reenter(first.Context())
		require.NoError(t, err)
		third, err := q.Reenter(context.WithValue(second.Context(), valueKey{}, "derived"))
		require.NoError(t, err)
		require.Equal(t, first.Token(), third.Token())
		require.Equal(t, first.Path(), third.Path())

		require.NoError(t, first.Leave()) // in any order
		require.ErrorIs(t, context.Cause(first.Context()), zkutil.ErrReleased)
		require.NoError(t, third.Context().Err())
		require.NoError(t, third.Leave())
		require.Len(t, srv.Log.Requests(), before)
		require.Len(t, srv.Children("/m"), 1)
		require.NoError(t, second.Leave())
		require.Empty(t, srv.Children("/m"))

		for _, e := range []*session.Entry{first, second, third} {
			_, err := q.Reenter(e.Context())
			require.ErrorIs(t, err, zkutil.ErrReleased, "never a silent new hold")
			require.ErrorIs(t, e.Leave(), zkutil.ErrNotHeld)
		}
	})
}

// The context of a released entry does not enter again, even while the hold continues in another entry, because its
// call tree is over.
func TestReentryThroughAnEndedEntry(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		q := fixture.MutexOn(s, "/m")
		first := bubble.Acquire(t, q.Acquire)
		second, err := q.Reenter(first.Context())
		require.NoError(t, err)
		require.NoError(t, second.Leave())
		_, err = q.Reenter(second.Context())
		require.ErrorIs(t, err, zkutil.ErrReleased)
		require.NoError(t, first.Leave())
	})
}

// Ownership is keyed by session, path and recipe.
func TestAnotherQueueDoesNotReenter(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s, other := fixture.Connect(t, srv.Config(30*time.Second)), fixture.Connect(t, srv.Config(30*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		recipe := fixture.MutexOn(s, "/m")
		recipe.Recipe = "semaphore"
		for _, q := range []fixture.Mutex{fixture.MutexOn(s, "/n"), fixture.MutexOn(other, "/m"), recipe} {
			none, err := q.Reenter(e.Context())
			require.NoError(t, err)
			require.Nil(t, none)
		}
		again, err := fixture.MutexOn(s, "/m").Reenter(e.Context())
		require.NoError(t, err)
		require.NotNil(t, again, "another value on the same path")
		require.NoError(t, again.Leave())
		require.NoError(t, e.Leave())
	})
}

// The context of a hold keeps the values of the acquiring context, not its end.
func TestContextOfAHold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, "value"), time.Second)
		e, err := fixture.MutexOn(s, "/m").Acquire(ctx)
		require.NoError(t, err)
		cancel()
		bubble.Pass(5 * time.Second)
		require.NoError(t, e.Context().Err())
		require.Equal(t, "value", e.Context().Value(valueKey{}))
		_, deadline := e.Context().Deadline()
		require.False(t, deadline)
		require.NoError(t, e.Leave())
	})
}

// After a pause of the process the keeper is late, and the first user of the hold finds it over. The test stops the
// keeper to simulate that.
func TestLateKeeper(t *testing.T) {
	for name, look := range map[string]func(q fixture.Mutex, e *session.Entry) error{
		"leave":   func(_ fixture.Mutex, e *session.Entry) error { return e.Leave() },
		"reenter": func(q fixture.Mutex, e *session.Entry) error { _, err := q.Reenter(e.Context()); return err },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(6*time.Second))
				q := fixture.MutexOn(s, "/m")
				e := bubble.Acquire(t, q.Acquire)
				s.EndTrust()
				require.NoError(t, e.Context().Err(), "nobody has noticed")
				require.ErrorIs(t, look(q, e), zkutil.ErrSessionLost)
				require.ErrorIs(t, context.Cause(e.Context()), zkutil.ErrSessionLost)
			})
		})
	}
}

// Leave without a connection returns an error after the operation timeout, and the deletion is retried in the
// background.
func TestLeaveWithoutAServer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(60 * time.Second)
		cfg.OperationTimeout = 5 * time.Second
		s := fixture.Connect(t, cfg)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		srv.Stop(srv.A)
		synctest.Wait()
		start := time.Now()
		err := e.Leave()
		require.Equal(t, 5*time.Second, time.Since(start))
		require.ErrorContains(t, err, "still retrying")
		require.ErrorContains(t, err, "connection refused")
		require.ErrorIs(t, context.Cause(e.Context()), zkutil.ErrReleased, "the hold has ended all the same")
		require.Len(t, srv.Children("/m"), 1)
		srv.Restart(srv.A)
		bubble.Eventually(t, 5*time.Second, func() bool { return len(srv.Children("/m")) == 0 })
		require.ErrorIs(t, e.Leave(), zkutil.ErrNotHeld)
	})
}

// A delete whose answer is lost is repeated until the server says that nothing is left.
func TestLostDeleteAnswer(t *testing.T) {
	for _, lost := range []zktest.Loss{zktest.ReplyLost, zktest.RequestLost} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(30*time.Second))
			e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
			srv.Once(zktest.OpDelete, zktest.Fault{Lost: lost})
			require.NoError(t, e.Leave())
			require.Empty(t, srv.Children("/m"))
			require.Len(t, srv.Log.Requests(zktest.OpDelete), 2)
		})
	}
}

// The refusal of a delete is reported, and the attempts continue, because an ACL may change.
func TestRefusedDelete(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(30 * time.Second)
		cfg.OperationTimeout = 3 * time.Second
		s := fixture.Connect(t, cfg)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		remove := srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		require.ErrorContains(t, e.Leave(), "no permission to delete children of /m")
		remove()
		bubble.Eventually(t, 5*time.Second, func() bool { return len(srv.Children("/m")) == 0 })
	})
}

// Each refused delete is a transaction, so the pauses between them grow to 30 s.
func TestRefusedDeletesBecomeRare(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		remove := srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		require.Error(t, e.Leave())
		bubble.Pass(5 * time.Minute)
		before := len(srv.Log.Requests(zktest.OpDelete))
		bubble.Pass(10 * time.Minute)
		require.InDelta(t, 10*time.Minute/(30*time.Second), len(srv.Log.Requests(zktest.OpDelete))-before, 10)
		remove()
		bubble.Eventually(t, 31*time.Second, func() bool { return len(srv.Children("/m")) == 0 })
	})
}

// Many goroutines enter and leave one hold. The znode is deleted exactly once.
func TestConcurrentEntries(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		q := fixture.MutexOn(s, "/m")
		e := bubble.Acquire(t, q.Acquire)
		var entries sync.WaitGroup
		for range 100 {
			entries.Go(func() {
				inner, err := q.Reenter(e.Context())
				if err == nil {
					err = inner.Leave()
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		entries.Wait()
		require.NoError(t, e.Leave())
		require.Len(t, srv.Log.Requests(zktest.OpDelete), 1)
	})
}

func TestHoldEndsWithItsZnode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		q := fixture.MutexOn(s, "/m")
		e := bubble.Acquire(t, q.Acquire)
		fixture.Settle()
		start := time.Now()
		srv.Delete(e.Path())
		at, cause := bubble.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrNodeDeleted)
		require.Equal(t, start, at)
		require.ErrorIs(t, e.Leave(), zkutil.ErrNodeDeleted)
		require.NoError(t, bubble.Acquire(t, q.Acquire).Leave())
	})
}
