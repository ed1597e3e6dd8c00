package queue_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestTryAcquireLeavesNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		q := fixture.MutexOn(s, "/m")
		e := bubble.Acquire(t, q.Acquire)
		start := time.Now()
		_, err := q.TryAcquire(t.Context())
		require.ErrorIs(t, err, zkutil.ErrNotAcquired)
		require.Equal(t, start, time.Now())
		require.Len(t, srv.Children("/m"), 1)
		require.NoError(t, e.Leave())
		e, err = q.TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, e.Leave())
	})
}

// The context ends at every step of an Acquire whose requests take 100 ms each.
func TestCancelAtEveryStepOfAcquire(t *testing.T) {
	for at := time.Duration(0); at < 2*time.Second; at += 50 * time.Millisecond {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s, other := fixture.Connect(t, srv.Config(30*time.Second)), fixture.Connect(t, srv.Config(30*time.Second))
			holder := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
			srv.Delay(zktest.OpAny, 100*time.Millisecond)
			time.AfterFunc(time.Second, func() { _ = holder.Leave() })
			ctx, cancel := context.WithTimeout(t.Context(), at)
			defer cancel()
			e, err := fixture.MutexOn(s, "/m").Acquire(ctx)
			if err == nil {
				require.NoError(t, e.Leave())
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			bubble.Pass(time.Until(time.Now().Truncate(time.Second).Add(3 * time.Second)))
			require.Empty(t, srv.Children("/m"), "cancelled at %v", at)
		})
	}
}

// Waiters are granted in the order of their znodes. One release wakes one of them.
func TestFIFOAndNoHerd(t *testing.T) {
	requestsPerHandoff := func(waiters int) (perHandoff float64) {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(time.Hour))
			q := fixture.MutexOn(s, "/m")
			e := bubble.Acquire(t, q.Acquire)
			var turns []<-chan bubble.Outcome[*session.Entry]
			for range waiters {
				turns = append(turns, bubble.Start(t.Context(), q.Acquire))
				synctest.Wait()
			}
			fixture.Settle()
			start := len(srv.Log.Requests())
			for _, turn := range turns {
				last := e
				require.NoError(t, last.Leave())
				e = (<-turn).Lease
				require.Greater(t, e.Token(), last.Token())
				synctest.Wait()
			}
			perHandoff = float64(len(srv.Log.Requests())-start) / float64(waiters)
			require.NoError(t, e.Leave())
		})
		return perHandoff
	}
	// Only the delete, because the next waiter is of the same session.
	for _, waiters := range []int{1, 8, 256} {
		require.InDelta(t, float64(waiters), requestsPerHandoff(waiters)*float64(waiters), 0.1)
	}
}

// A waiter in the middle gives up. Its successor then watches the znode that it watched.
func TestWaiterInTheMiddleLeaves(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		q := fixture.MutexOn(s, "/m")
		e := bubble.Acquire(t, q.Acquire)
		ctx, cancel := context.WithCancel(t.Context())
		middle := bubble.Start(ctx, q.Acquire)
		synctest.Wait()
		last := bubble.Start(t.Context(), q.Acquire)
		synctest.Wait()
		cancel()
		require.ErrorIs(t, (<-middle).Err, context.Canceled)
		synctest.Wait()
		require.Empty(t, last)
		require.NoError(t, e.Leave())
		got := <-last
		require.NoError(t, got.Err)
		require.NoError(t, got.Lease.Leave())
	})
}

// Foreign children are ignored; foreign contenders are honoured.
func TestForeignChildren(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.Put("/m", nil)
		for _, name := range []string{"config", "_c_x", "lock-", "__x", "lock-abc", "_c_-lock-12"} {
			srv.Put("/m/"+name, nil)
		}
		require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())

		for _, name := range []string{
			"_c_0123456789abcdef0123456789abcdef-lock-0000000000",     // zk.Lock
			"0123456789abcdef0123456789abcdef__lock__0000000000",      // kazoo
			"_c_8e3b5d3e-5b0c-4c7e-9c3b-0a2b4c6d8e0f-lock-0000000000", // Curator
			"-lock--000000001", // an overflown counter
		} {
			srv.Put("/m/"+name, nil)
			_, err := fixture.MutexOn(s, "/m").TryAcquire(t.Context())
			require.ErrorIs(t, err, zkutil.ErrNotAcquired, name)
			srv.Delete("/m/" + name)
		}
		require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
	})
}

func TestParticipants(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		q := fixture.MutexOn(s, "/m")
		none, err := q.Participants(t.Context())
		require.NoError(t, err)
		require.Empty(t, none, "of a missing directory")
		e := bubble.Acquire(t, q.Acquire)
		for i := range 40 {
			srv.Put(fmt.Sprintf("/m/x-lock-%010d", 100-i), []byte(fmt.Sprint(100-i)))
		}
		srv.Put("/m/config", []byte("no contender"))
		gone := false
		remove := srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetData && !gone {
				gone = true
				srv.Delete("/m/x-lock-0000000077") // leaves while the list is read
			}
			return zktest.Fault{}
		})
		all, err := q.Participants(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 40)
		_, stat, there := srv.Get(e.Path())
		require.True(t, there)
		require.Equal(t, queue.Participant{Path: e.Path(), Data: []byte("me"), Token: e.Token(), Created: time.UnixMilli(stat.Ctime), IsAdmitted: true}, all[0])
		for i, p := range all[1:] {
			if i > 0 {
				require.Greater(t, p.Path, all[i].Path)
			}
			require.Equal(t, p.Path, fmt.Sprintf("/m/x-lock-%010s", p.Data))
			require.False(t, p.IsAdmitted)
		}
		remove()
		require.NoError(t, e.Leave())
	})
}
