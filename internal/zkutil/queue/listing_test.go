package queue_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The connection is another one when a waiter gets the answer to a listing that it shares. The
// answer may be outdated, so the waiter reads the queue again before it is granted.
func TestReconnectDuringASharedListing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		srv.Put("/m", nil)
		q := fixture.MutexOn(s, "/m")
		looks := 0
		q.Rule = func(_ []queue.Contender, own int) int {
			looks++
			return own - 1
		}
		srv.Once(zktest.OpGetChildren2, zktest.Fault{Delay: time.Second})
		var listings atomic.Int32
		go func() { // ends with its listing; the waiter shares the next one
			_, _ = session.ListChildren(t.Context(), s, q.Dir, q.Prefix, func(children []string) []queue.Contender {
				if listings.Add(1) == 2 {
					srv.Disconnect()
					bubble.Pause(2 * time.Second)
				}
				return queue.ParseContenders(children, q.Markers)
			})
		}()
		synctest.Wait()
		e := bubble.Acquire(t, q.Acquire)
		require.EqualValues(t, 2, listings.Load())
		require.Len(t, srv.Dialled(), 2)
		require.Equal(t, 1, looks, "not at the listing that was shared")
		require.Len(t, srv.Log.Requests(zktest.OpGetChildren2), 3)
		require.NoError(t, e.Leave())
	})
}

// A free lock is not granted from a look that a reconnect overtook. The waiter looks again on the new connection, without a watch on its
// own znode that could fire.
func TestReconnectDuringTheLookOfAFreeLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		srv.Put("/m", nil)
		q := fixture.MutexOn(s, "/m")
		reconnect := func() {
			srv.Disconnect()
			bubble.Pause(2 * time.Second)
		}
		var listings atomic.Int32 // parsed in the goroutine, and in one of the session's
		looks := 0
		q.Rule = func(_ []queue.Contender, own int) int {
			if looks++; looks == 1 { // makes the waiter look again, and share a listing with the goroutine
				reconnect()
				srv.Once(zktest.OpGetChildren2, zktest.Fault{Delay: time.Second})
				go func() { // ends with the listing that the waiter shares
					_, _ = session.ListChildren(t.Context(), s, q.Dir, q.Prefix, func(children []string) []queue.Contender {
						if listings.Add(1) == 2 {
							reconnect()
						}
						return queue.ParseContenders(children, q.Markers)
					})
				}()
				synctest.Wait()
			}
			return own - 1
		}
		e := bubble.Acquire(t, q.Acquire)
		require.EqualValues(t, 2, listings.Load())
		require.Len(t, srv.Dialled(), 3)
		require.Equal(t, 3, looks, "granted from the look before the reconnect")
		require.NoError(t, e.Leave())
	})
}

// A listing is under way while a contender joins: it shares the next one, which is sent behind its create
// and shows it, even if the listing ends at that moment.
func TestSharedListingShowsTheNewContender(t *testing.T) {
	const slow = time.Second
	for before := 2 * time.Millisecond; before > 0; before -= 500 * time.Microsecond {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(6*time.Second))
			srv.Put("/m", nil)
			q := fixture.MutexOn(s, "/m")
			srv.Once(zktest.OpGetChildren2, zktest.Fault{Delay: slow})
			go func() { // ends with its listing
				_, _ = session.ListChildren(t.Context(), s, q.Dir, q.Prefix, func(children []string) []queue.Contender {
					return queue.ParseContenders(children, q.Markers)
				})
			}()
			bubble.Pass(slow - before)
			e := bubble.Acquire(t, q.Acquire)
			require.Equal(t, 1, srv.Log.Count(zktest.OpCreate2))
			require.Equal(t, 2, srv.Log.Count(zktest.OpGetChildren2))
			require.NoError(t, e.Leave())
		})
	}
}
