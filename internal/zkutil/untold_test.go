package zkutil

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
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
	srv.mu.Lock()
	srv.deaf = true
	srv.mu.Unlock()
	what()
	synctest.Wait()
	srv.mu.Lock()
	srv.deaf = false
	srv.mu.Unlock()
}

// haunting is the net.Conn of a client whose server goes on showing a znode that is gone.
type haunting struct {
	net.Conn
	dir, name string
	rest      []byte // of an answer

	mu    sync.Mutex
	asked map[int32]int32 // operations whose answers are false, by xid; guarded by mu
}

// haunt makes the server that a session comes to first show a ghost.
func haunt(dial zk.Dialer, dir, name string) zk.Dialer {
	first := ""
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		first = cmp.Or(first, address)
		conn, err := dial(network, address, timeout)
		if err == nil && address == first {
			conn = &haunting{Conn: conn, dir: dir, name: name, asked: map[int32]int32{}}
		}
		return conn, err
	}
}

func (h *haunting) Write(frame []byte) (int, error) {
	d := proto.NewDecoder(frame[4:])
	switch xid, op, path := d.Int32(), d.Int32(), d.String(); {
	case op == proto.OpGetChildren2 && path == h.dir, op == proto.OpGetData && path == Join(h.dir, h.name):
		h.mu.Lock()
		h.asked[xid] = op
		h.mu.Unlock()
	}
	return h.Conn.Write(frame)
}

func (h *haunting) Read(p []byte) (int, error) {
	for len(h.rest) == 0 {
		frame, err := readFrame(h.Conn)
		if err != nil {
			return 0, err
		}
		h.rest = h.lie(frame[4:])
	}
	n := copy(p, h.rest)
	h.rest = h.rest[n:]
	return n, nil
}

// lie returns what is to be read in place of a frame, if anything.
func (h *haunting) lie(frame []byte) []byte {
	d := proto.NewDecoder(frame)
	e := proto.NewEncoder()
	xid, zxid, code := d.Int32(), d.Int64(), d.Int32()
	h.mu.Lock()
	op := h.asked[xid]
	delete(h.asked, xid)
	h.mu.Unlock()
	switch {
	case xid == proto.XidEvent && strings.Contains(string(frame), h.name):
		return nil
	case op == proto.OpGetChildren2 && code == proto.CodeOK && !strings.Contains(string(frame), h.name):
		e.Int32(xid).Int64(zxid).Int32(code).Int32(d.Int32() + 1).String(h.name).Raw(frame[len(frame)-d.Len():])
	case op == proto.OpGetData && code == proto.CodeNoNode:
		e.Int32(xid).Int64(zxid).Int32(proto.CodeOK).Buffer(nil).Raw(make([]byte, 68)) // a stat of zeros
	default:
		e.Raw(frame)
	}
	return e.Frame()
}

// The waiter's server goes on showing the znode ahead, which is gone everywhere else. He
// finds out, and leaves that server; so does one who comes later.
func TestServerShowsWhatIsGone(t *testing.T) {
	const timeout = 6 * time.Second
	for name, late := range map[string]bool{"to a waiter": false, "to a newcomer": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newEnsemble(t)
				other := connect(t, srv.config(timeout, srv.a))
				e := acquire(t, mutexOn(other, "/m"))
				dir, ghost := split(e.Path())
				cfg := srv.config(timeout, srv.a, srv.b)
				cfg.Dialer = haunt(cfg.Dialer, dir, ghost)
				s := connect(t, cfg)
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

// An audit takes a heartbeat's place, and a server that tells everything is not left.
func TestAuditsOfAWaiter(t *testing.T) {
	const timeout = 6 * time.Second
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		other, s := twoClients(t, srv, timeout)
		e := acquire(t, mutexOn(other, "/m"))
		ctx, cancel := context.WithCancel(t.Context())
		turn := acquireLater(ctx, mutexOn(s, "/m"))
		pass(10*timeout + time.Millisecond)
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
