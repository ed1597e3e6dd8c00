package queue_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
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
					fixture.Pause(2 * time.Second)
				}
				return queue.ParseContenders(children, q.Markers)
			})
		}()
		synctest.Wait()
		e := fixture.Acquire(t, q)
		require.EqualValues(t, 2, listings.Load())
		require.Len(t, srv.Dialled(), 2)
		require.Equal(t, 1, looks, "not at the listing that was shared")
		require.Len(t, srv.Log.Requests(zktest.OpGetChildren2), 3)
		require.NoError(t, e.Leave())
	})
}

// The same when the waiter looks again, as one does on an adopted connection after each create.
func TestReconnectDuringASharedLook(t *testing.T) {
	const slow = time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s, _ := fixture.Adopt(t, srv, 6*time.Second)
		srv.Put("/m", nil)
		q := fixture.MutexOn(s, "/m")
		looks := 0
		q.Rule = func(_ []queue.Contender, own int) int {
			looks++
			return own - 1
		}
		var listings atomic.Int32
		list := func() {
			_, _ = session.ListChildren(t.Context(), s, q.Dir, q.Prefix, func(children []string) []queue.Contender {
				if listings.Add(1) == 3 {
					fixture.Pause(slow / 2) // the own znode has been read by then
					srv.Disconnect()
					fixture.Pause(2 * time.Second)
				}
				return queue.ParseContenders(children, q.Markers)
			})
		}
		defer srv.Delay(zktest.OpGetChildren2, slow)()
		go list() // both end with their listings; the create's is the second
		fixture.Pass(slow / 2)
		turn := fixture.AcquireLater(t.Context(), q)
		fixture.Pass(slow)
		go list()
		got := <-turn
		require.NoError(t, got.Err)
		require.Len(t, srv.Dialled(), 2)
		require.Equal(t, 2, looks, "granted by what another connection has told")
		require.NoError(t, got.Entry.Leave())
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
			fixture.Pass(slow - before)
			e := fixture.Acquire(t, q)
			require.Equal(t, 1, srv.Log.Count(zktest.OpCreate2))
			require.Equal(t, 2, srv.Log.Count(zktest.OpGetChildren2))
			require.NoError(t, e.Leave())
		})
	}
}
