package queue_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A second znode with our own uuid is ours, ahead of the first or behind it. No contender waits for it, and it is
// deleted. Other clients' znodes stay.
func TestTwinIsRemoved(t *testing.T) {
	for where, sequence := range map[string]string{"ahead": "0000000003", "behind": "0000000009"} {
		t.Run(where, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(6*time.Second))
				srv.Put("/m", nil)
				stranger := "_c_" + "0123abcd-0000-4000-8000-000000000000" + "-lock-0000000010"
				srv.Put("/m/"+stranger, nil)
				srv.SetSequence("/m", 5)
				var mu sync.Mutex // protects twin
				twin := ""
				srv.OnRequest(func(r zktest.Request) zktest.Fault {
					for _, name := range srv.Children("/m") {
						if r.Op == zktest.OpGetChildren2 && strings.HasSuffix(name, "0000000005") {
							mu.Lock()
							twin = fixture.TwinOf(name, sequence)
							mu.Unlock()
							srv.Put("/m/"+fixture.TwinOf(name, sequence), nil)
						}
					}
					return zktest.Fault{}
				})
				turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
				bubble.Pass(time.Second)
				mu.Lock()
				defer mu.Unlock()
				require.NotEmpty(t, twin)
				require.NotEmpty(t, turn, "it waits for itself")
				got := <-turn
				require.NoError(t, got.Err)
				require.NotEqual(t, "/m/"+twin, got.Lease.Path())
				require.Len(t, slices.DeleteFunc(srv.Log.Requests(zktest.OpDelete), func(r zktest.Request) bool { return r.Path != "/m/"+twin }), 1)
				require.NoError(t, got.Lease.Leave())
				require.Equal(t, []string{stranger}, srv.Children("/m"))
			})
		})
	}
}

// While the server refuses to delete the twin, a waiter that reads the queue again and again does not
// ask for the deletion more often, and gets its turn.
func TestTwinIsRemovedOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		other, s := fixture.TwoClients(t, srv, 6*time.Second)
		e := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
		turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
		synctest.Wait()
		queue := srv.Children("/m")
		own := queue[slices.IndexFunc(queue, func(name string) bool { return "/m/"+name != e.Path() })]
		twin := "/m/" + fixture.TwinOf(own, "0000000009")
		srv.Put(twin, nil)
		var refusals atomic.Int32
		remove := srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete && r.Path == twin {
				refusals.Add(1)
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		for range 20 { // each time the waiter reads the queue
			srv.Disconnect()
			bubble.Pass(100 * time.Millisecond)
		}
		require.Less(t, refusals.Load(), int32(20), "the pauses of one deletion grow: it was asked for by each look")
		remove()
		require.NoError(t, e.Leave())
		got := <-turn
		require.NoError(t, got.Err)
		require.NoError(t, got.Lease.Leave())
		bubble.Eventually(t, time.Minute, func() bool { return len(srv.Children("/m")) == 0 })
	})
}

// A create that is executed after the grant, because it was repeated and the repetition was granted, leaves no znode that would
// block the others for the life of the session.
func TestTwinAfterTheGrantIsRemoved(t *testing.T) {
	for _, isReleased := range []bool{false, true} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			holder, other := fixture.TwoClients(t, srv, 6*time.Second)
			srv.Once(zktest.OpCreate2, zktest.Fault{Lost: zktest.RequestLost})
			held := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
			own := srv.Children("/m")[0]
			bubble.Pass(2 * time.Second)
			srv.Put("/m/"+fixture.TwinOf(own, "0000000007"), nil)
			if isReleased {
				require.NoError(t, held.Leave())
			}
			bubble.Pass(6 * time.Second)
			if !isReleased {
				require.Equal(t, []string{own}, srv.Children("/m"))
				require.NoError(t, held.Leave())
			}
			require.NoError(t, bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire).Leave())
			require.Empty(t, srv.Children("/m"))
		})
	}
}

// Repeated creates leave no goroutine that waits for late twins, because a cut may affect thousands of waiters.
func TestLateTwinsTakeNoGoroutine(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(time.Minute))
		require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
		fixture.Settle()
		before := runtime.NumGoroutine() // of the whole process, which may run a finalizer at any time
		for range 20 {
			srv.Once(zktest.OpCreate2, zktest.Fault{Lost: zktest.RequestLost})
			require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
		}
		fixture.Settle()
		require.LessOrEqual(t, runtime.NumGoroutine(), before+5)
	})
}

// A create that failed after a lost answer leaves no znode that would block the others for the life of the session, even if a server
// executes it after the search for its znode.
func TestLateZnodeOfAFailedCreateIsRemoved(t *testing.T) {
	const timeout = 6 * time.Second
	for name, fail := range map[string]func(srv *fixture.Ensemble, cancel func()){
		"abandoned before its answer was lost": func(srv *fixture.Ensemble, cancel func()) {
			srv.OnRequest(func(r zktest.Request) zktest.Fault {
				if r.Op != zktest.OpCreate2 {
					return zktest.Fault{}
				}
				cancel()
				bubble.Pause(time.Second)
				return zktest.Fault{Lost: zktest.RequestLost}
			})
		},
		"refused when sent again": func(srv *fixture.Ensemble, _ func()) {
			creates := 0
			srv.OnRequest(func(r zktest.Request) zktest.Fault {
				if r.Op != zktest.OpCreate2 {
					return zktest.Fault{}
				}
				if creates++; creates == 1 {
					return zktest.Fault{Lost: zktest.RequestLost}
				}
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			})
		},
		"not sent again": func(srv *fixture.Ensemble, cancel func()) {
			srv.OnRequest(func(r zktest.Request) zktest.Fault {
				switch r.Op {
				case zktest.OpCreate2:
					return zktest.Fault{Lost: zktest.RequestLost}
				case zktest.OpGetChildren2: // of the search
					cancel()
				}
				return zktest.Fault{}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(timeout))
				srv.Put("/m", nil)
				var mu sync.Mutex // protects created
				created := ""
				srv.OnRequest(func(r zktest.Request) zktest.Fault {
					if r.Op == zktest.OpCreate2 {
						mu.Lock()
						defer mu.Unlock()
						created = r.Path
					}
					return zktest.Fault{}
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				fail(srv, cancel)
				_, err := fixture.MutexOn(s, "/m").Acquire(ctx)
				require.Error(t, err)
				bubble.Pass(4 * time.Second)
				require.Empty(t, srv.Children("/m"))
				mu.Lock()
				srv.Put(created+"0000000007", nil)
				mu.Unlock()
				bubble.Pass(2 * timeout)
				require.Empty(t, srv.Children("/m"))
			})
		})
	}
}
