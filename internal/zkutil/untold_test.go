package zkutil

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// untold runs something of which no client is told.
func untold(srv *ensemble, what func()) {
	remove := srv.DropEvent(math.MaxInt)
	what()
	synctest.Wait()
	remove()
}

// The waiter's server goes on showing the znode ahead, which is gone everywhere else. He
// finds out, and leaves that server; so does one who comes later.
func TestServerShowsWhatIsGone(t *testing.T) {
	const timeout = 6 * time.Second
	for name, late := range map[string]bool{"to a waiter": false, "to a newcomer": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newEnsemble(t, zktest.WithServers(3))
				other := connect(t, srv.config(timeout, srv.Addrs()[2]))
				e := acquire(t, mutexOn(other, "/m"))
				s := connect(t, srv.config(timeout, srv.a, srv.b))
				at, _ := srv.Session(sessionID(s))
				srv.KeepShowing(e.Path(), at.Server)
				if late {
					require.NoError(t, e.Leave())
				}
				turn := acquireLater(t.Context(), mutexOn(s, "/m"))
				synctest.Wait()
				if !late {
					require.NoError(t, e.Leave())
				}
				pass(time.Second)
				require.Empty(t, turn)
				pass(found(timeout) + time.Second) // with a new connection
				require.NotEmpty(t, turn)
				got := <-turn
				require.NoError(t, got.err)
				require.NoError(t, got.entry.Leave())
				dialled := srv.dialled()
				require.NotEqual(t, dialled[1], dialled[2], "the server is left")
				require.Len(t, dialled, 3)
			})
		})
	}
}

// A server that shows what is gone is left, but not one that the client has come to since it
// asked the leader: that one may be behind.
func TestNextServerMayBeBehind(t *testing.T) {
	for name, since := range map[string]uint64{"the same connection": 0, "the next one": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newEnsemble(t)
				s := connect(t, srv.config(6*time.Second))
				srv.Put("/ghost", nil)
				s.mu.Lock()
				epoch := s.epoch
				s.mu.Unlock()
				s.disproved(t.Context(), "/ghost", zk.ErrNoNode, epoch-since)
				pass(time.Second)
				require.Len(t, srv.dialled(), 2-int(since))
			})
		})
	}
}

// found is how long it may take until an audit finds what was not told.
func found(timeout time.Duration) time.Duration {
	return timeout/auditsPerTimeout + timeout/beatsPerTimeout + 100*time.Millisecond
}

// A server does not tell a waiter that the znode ahead is gone. He finds out, be his session
// idle or so busy that it needs no heartbeats, his own connection or an adopted one. It may
// have been right not to tell: the connection is kept.
func TestWaiterIsNotTold(t *testing.T) {
	const timeout = 6 * time.Second
	tests := map[string]struct{ busy, adopted bool }{
		"idle":    {},
		"busy":    {busy: true},
		"adopted": {adopted: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newEnsemble(t)
				other, s := twoClients(t, srv, timeout)
				if tt.adopted {
					s, _ = adopt(t, srv, timeout)
				}
				e := acquire(t, mutexOn(other, "/m"))
				turn := acquireLater(t.Context(), mutexOn(s, "/m"))
				synctest.Wait()
				pass(timeout)
				dialled := srv.dialled()
				untold(srv, func() { require.NoError(t, e.Leave()) })
				for end := time.Now().Add(found(timeout)); time.Now().Before(end); pass(100 * time.Millisecond) {
					if tt.busy {
						require.NoError(t, acquire(t, mutexOn(s, "/beside")).Leave())
					}
				}
				require.NotEmpty(t, turn)
				got := <-turn
				require.NoError(t, got.err)
				require.NoError(t, got.entry.Leave())
				require.Equal(t, dialled, srv.dialled())
			})
		})
	}
}

// Of hundreds of waiters in one session each is found.
func TestOneOfManyIsNotTold(t *testing.T) {
	const timeout, many = 6 * time.Second, 3*maxAudited + 1
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		other, s := twoClients(t, srv, timeout)
		ctx, cancel := context.WithCancel(t.Context())
		var holds []*Entry
		var turns []<-chan granted
		for i := range many {
			holds = append(holds, acquire(t, mutexOn(other, fmt.Sprintf("/m%d", i))))
			turns = append(turns, acquireLater(ctx, mutexOn(s, fmt.Sprintf("/m%d", i))))
			synctest.Wait()
		}
		pass(timeout)
		for i := 0; i < many; i += maxAudited {
			untold(srv, func() { require.NoError(t, holds[i].Leave()) })
			pass(time.Duration(2*many/maxAudited+2) * timeout / auditsPerTimeout) // their own znodes are watched, too
			require.NotEmpty(t, turns[i], i)
		}
		cancel()
		for i, turn := range turns {
			if got := <-turn; i%maxAudited == 0 {
				require.NoError(t, got.entry.Leave())
			} else {
				require.ErrorIs(t, got.err, context.Canceled)
				require.NoError(t, holds[i].Leave())
			}
		}
	})
}

// Somebody takes the right to read the znodes ahead away from some waiters of a session.
// They are not told when those go, so they do not wait on; where they are gone already, it is
// their turn. Nothing else in the session is harmed.
func TestRightToReadIsTakenFromWaiters(t *testing.T) {
	const timeout, many = 6 * time.Second, 8
	for name, gone := range map[string]bool{"and the znodes stay": false, "and the znodes go": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newEnsemble(t)
				other := connect(t, srv.config(timeout, srv.a))
				cfg := srv.config(timeout, srv.b)
				cfg.SuspendEnds = true
				s := connect(t, cfg)
				beside := acquire(t, mutexOn(s, "/beside"))
				var holds []*Entry
				var turns []<-chan granted
				for i := range many {
					holds = append(holds, acquire(t, mutexOn(other, fmt.Sprintf("/m%d", i))))
					turns = append(turns, acquireLater(t.Context(), mutexOn(s, fmt.Sprintf("/m%d", i))))
				}
				synctest.Wait()
				for _, e := range holds {
					_, err := other.Conn().SetACL(e.Path(), zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
					require.NoError(t, err)
					if gone {
						require.NoError(t, e.Leave())
					}
				}
				pass(found(timeout))
				for i, turn := range turns {
					require.NotEmpty(t, turn, i)
					got := <-turn
					if gone {
						require.NoError(t, got.err)
						require.NoError(t, got.entry.Leave())
					} else {
						require.ErrorIs(t, got.err, zk.ErrNoAuth)
						require.NoError(t, holds[i].Leave())
					}
				}
				require.NoError(t, beside.Leave())
				require.Len(t, srv.dialled(), 2)
			})
		})
	}
}

// Twice a session timeout an audit of a waiter takes a heartbeat's place, and a server that
// tells everything is not left.
func TestAuditsOfAWaiter(t *testing.T) {
	const timeout = 6 * time.Second
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		other, s := twoClients(t, srv, timeout)
		e := acquire(t, mutexOn(other, "/m"))
		ctx, cancel := context.WithCancel(t.Context())
		turn := acquireLater(ctx, mutexOn(s, "/m"))
		synctest.Wait()
		queue := srv.Children("/m")
		own := "/m/" + queue[slices.IndexFunc(queue, func(name string) bool { return "/m/"+name != e.Path() })]
		var audits atomic.Int32 // of the waiter: both znodes in one transaction
		srv.mu.Lock()
		srv.onWrite = func(frame []byte) error {
			if opOf(frame) == proto.OpMulti && bytes.Contains(frame, []byte(e.Path())) && bytes.Contains(frame, []byte(own)) {
				audits.Add(1)
			}
			return nil
		}
		srv.mu.Unlock()
		pass(10*timeout + time.Millisecond)
		srv.mu.Lock()
		srv.onWrite = nil
		srv.mu.Unlock()
		require.InDelta(t, 10*auditsPerTimeout, audits.Load(), 1)
		require.LessOrEqual(t, len(srv.log.Requests(zktest.OpMulti)), 2*10*beatsPerTimeout)
		require.Len(t, srv.dialled(), 2)
		cancel()
		require.Error(t, (<-turn).err)
		require.NoError(t, e.Leave())
		pass(time.Millisecond)
		over := time.Now()
		pass(10 * timeout)
		require.Empty(t, times(srv.log.Requests(zktest.OpMulti), over), "nobody waits for anything")
	})
}
