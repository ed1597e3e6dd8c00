package session_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

type valueKey struct{}

func TestReentryCostsNoRequestAndTheLastReleaseDeletes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		q := fixture.MutexOn(s, "/m")
		first := fixture.Acquire(t, q)
		before := len(srv.Log.Requests())
		second, err := q.Reenter(first.Context())
		require.NoError(t, err)
		third, err := q.Reenter(context.WithValue(second.Context(), valueKey{}, "derived"))
		require.NoError(t, err)
		require.Equal(t, first.Token(), third.Token())
		require.Equal(t, first.Path(), third.Path())

		require.NoError(t, first.Leave()) // in whatever order
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

// The context of an entry that was given back does not enter again, even while
// the hold lives on in another entry: the tree below it is over.
func TestReentryThroughAnEndedEntry(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		q := fixture.MutexOn(s, "/m")
		first := fixture.Acquire(t, q)
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
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		recipe := fixture.MutexOn(s, "/m")
		recipe.Recipe = "semaphore"
		for _, q := range []*queue.Queue{fixture.MutexOn(s, "/n"), fixture.MutexOn(other, "/m"), recipe} {
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

// The context of a hold keeps the values of the one that acquired, not its end.
func TestContextOfAHold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, "value"), time.Second)
		e, err := fixture.MutexOn(s, "/m").Acquire(ctx)
		require.NoError(t, err)
		cancel()
		fixture.Pass(5 * time.Second)
		require.NoError(t, e.Context().Err())
		require.Equal(t, "value", e.Context().Value(valueKey{}))
		_, deadline := e.Context().Deadline()
		require.False(t, deadline)
		require.NoError(t, e.Leave())
	})
}

// After a pause of the process the keeper is late; whoever looks at the hold first
// finds it over. The test stops the keeper to get there.
func TestLateKeeper(t *testing.T) {
	for name, look := range map[string]func(q *queue.Queue, e *session.Entry) error{
		"leave":   func(_ *queue.Queue, e *session.Entry) error { return e.Leave() },
		"reenter": func(q *queue.Queue, e *session.Entry) error { _, err := q.Reenter(e.Context()); return err },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(6*time.Second))
				q := fixture.MutexOn(s, "/m")
				e := fixture.Acquire(t, q)
				s.EndTrust()
				require.NoError(t, e.Context().Err(), "nobody has noticed")
				require.ErrorIs(t, look(q, e), zkutil.ErrSessionLost)
				require.ErrorIs(t, context.Cause(e.Context()), zkutil.ErrSessionLost)
			})
		})
	}
}

// Leave without a connection: an error that says so after the operation timeout, and
// the deletion goes on behind it.
func TestLeaveWithoutAServer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(60 * time.Second)
		cfg.OperationTimeout = 5 * time.Second
		s := fixture.Connect(t, cfg)
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		srv.Stop(srv.A)
		synctest.Wait()
		start := time.Now()
		err := e.Leave()
		require.Equal(t, 5*time.Second, time.Since(start))
		require.ErrorContains(t, err, "deletion goes on")
		require.ErrorContains(t, err, "connection refused")
		require.ErrorIs(t, context.Cause(e.Context()), zkutil.ErrReleased, "the hold has ended all the same")
		require.Len(t, srv.Children("/m"), 1)
		srv.Restart(srv.A)
		fixture.Eventually(t, 5*time.Second, func() bool { return len(srv.Children("/m")) == 0 })
		require.ErrorIs(t, e.Leave(), zkutil.ErrNotHeld)
	})
}

// A delete whose answer is lost is repeated until the server says that nothing is left.
func TestLostDeleteAnswer(t *testing.T) {
	for _, lost := range []zktest.Loss{zktest.ReplyLost, zktest.RequestLost} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(30*time.Second))
			e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
			srv.Once(zktest.OpDelete, zktest.Fault{Lost: lost})
			require.NoError(t, e.Leave())
			require.Empty(t, srv.Children("/m"))
			require.Len(t, srv.Log.Requests(zktest.OpDelete), 2)
		})
	}
}

// The refusal of a delete is reported, and the attempts go on: an ACL may change.
func TestRefusedDelete(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(30 * time.Second)
		cfg.OperationTimeout = 3 * time.Second
		s := fixture.Connect(t, cfg)
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		remove := srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		require.ErrorContains(t, e.Leave(), "no permission to delete children of /m")
		remove()
		fixture.Eventually(t, 5*time.Second, func() bool { return len(srv.Children("/m")) == 0 })
	})
}

// Each delete that is refused is a transaction, so the pauses between them grow to 30 s.
func TestRefusedDeletesBecomeRare(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		remove := srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		require.Error(t, e.Leave())
		fixture.Pass(5 * time.Minute)
		before := len(srv.Log.Requests(zktest.OpDelete))
		fixture.Pass(10 * time.Minute)
		require.InDelta(t, 10*time.Minute/(30*time.Second), len(srv.Log.Requests(zktest.OpDelete))-before, 10)
		remove()
		fixture.Eventually(t, 31*time.Second, func() bool { return len(srv.Children("/m")) == 0 })
	})
}

// Many goroutines enter and leave one hold: the znode goes exactly once.
func TestConcurrentEntries(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		q := fixture.MutexOn(s, "/m")
		e := fixture.Acquire(t, q)
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
		e := fixture.Acquire(t, q)
		fixture.Settle()
		start := time.Now()
		srv.Delete(e.Path())
		at, cause := fixture.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrNodeDeleted)
		require.Equal(t, start, at)
		require.ErrorIs(t, e.Leave(), zkutil.ErrNodeDeleted)
		require.NoError(t, fixture.Acquire(t, q).Leave())
	})
}
