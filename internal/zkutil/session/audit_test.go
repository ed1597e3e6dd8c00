package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The waiter's server goes on showing the znode ahead, which is gone everywhere else. He
// finds out, and leaves that server; so does one who comes later.
func TestServerShowsWhatIsGone(t *testing.T) {
	const timeout = 6 * time.Second
	for name, late := range map[string]bool{"to a waiter": false, "to a newcomer": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t, zktest.WithServers(3))
				other := fixture.Connect(t, srv.Config(timeout, srv.Addrs()[2]))
				e := fixture.Acquire(t, fixture.MutexOn(other, "/m"))
				s := fixture.Connect(t, srv.Config(timeout, srv.A, srv.B))
				at, _ := srv.Session(fixture.SessionID(s))
				srv.KeepShowing(e.Path(), at.Server)
				if late {
					require.NoError(t, e.Leave())
				}
				turn := fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/m"))
				synctest.Wait()
				if !late {
					require.NoError(t, e.Leave())
				}
				fixture.Pass(time.Second)
				require.Empty(t, turn)
				fixture.Pass(found(timeout) + time.Second) // with a new connection
				require.NotEmpty(t, turn)
				got := <-turn
				require.NoError(t, got.Err)
				require.NoError(t, got.Entry.Leave())
				dialled := srv.Dialled()
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
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(6*time.Second))
				srv.Put("/ghost", nil)
				s.Disprove(t.Context(), "/ghost", zk.ErrNoNode, s.Snapshot().Epoch-since)
				fixture.Pass(time.Second)
				require.Len(t, srv.Dialled(), 2-int(since))
			})
		})
	}
}

// found is how long it may take until an audit finds what was not told.
func found(timeout time.Duration) time.Duration {
	return timeout/zkutil.AuditsPerTimeout + timeout/zkutil.BeatsPerTimeout + 100*time.Millisecond
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
				srv := fixture.NewEnsemble(t)
				other, s := fixture.TwoClients(t, srv, timeout)
				if tt.adopted {
					s, _ = fixture.Adopt(t, srv, timeout)
				}
				e := fixture.Acquire(t, fixture.MutexOn(other, "/m"))
				turn := fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/m"))
				synctest.Wait()
				fixture.Pass(timeout)
				dialled := srv.Dialled()
				fixture.Untold(srv, func() { require.NoError(t, e.Leave()) })
				for end := time.Now().Add(found(timeout)); time.Now().Before(end); fixture.Pass(100 * time.Millisecond) {
					if tt.busy {
						require.NoError(t, fixture.Acquire(t, fixture.MutexOn(s, "/beside")).Leave())
					}
				}
				require.NotEmpty(t, turn)
				got := <-turn
				require.NoError(t, got.Err)
				require.NoError(t, got.Entry.Leave())
				require.Equal(t, dialled, srv.Dialled())
			})
		})
	}
}

// Of hundreds of waiters in one session each is found.
func TestOneOfManyIsNotTold(t *testing.T) {
	const timeout, many = 6 * time.Second, 3*session.MaxAudited + 1
	synctest.Test(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		other, s := fixture.TwoClients(t, srv, timeout)
		ctx, cancel := context.WithCancel(t.Context())
		var holds []*session.Entry
		var turns []<-chan fixture.Granted
		for i := range many {
			holds = append(holds, fixture.Acquire(t, fixture.MutexOn(other, fmt.Sprintf("/m%d", i))))
			turns = append(turns, fixture.AcquireLater(ctx, fixture.MutexOn(s, fmt.Sprintf("/m%d", i))))
			synctest.Wait()
		}
		fixture.Pass(timeout)
		for i := 0; i < many; i += session.MaxAudited {
			fixture.Untold(srv, func() { require.NoError(t, holds[i].Leave()) })
			fixture.Pass(time.Duration(2*many/session.MaxAudited+2) * timeout / zkutil.AuditsPerTimeout) // their own znodes are watched, too
			require.NotEmpty(t, turns[i], i)
		}
		cancel()
		for i, turn := range turns {
			if got := <-turn; i%session.MaxAudited == 0 {
				require.NoError(t, got.Entry.Leave())
			} else {
				require.ErrorIs(t, got.Err, context.Canceled)
				require.NoError(t, holds[i].Leave())
			}
		}
	})
}

// Somebody takes the right to read the znodes ahead away from some waiters of a session.
// They are not told when those go, so they do not wait on; where they are gone already, it is
// their turn. Nothing else in the session is harmed.
func TestRightToReadIsTakenFromWaiters(t *testing.T) {
	for name, gone := range map[string]bool{"and the znodes stay": false, "and the znodes go": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { takeRightToRead(t, gone) })
		})
	}
}

func takeRightToRead(t *testing.T, gone bool) {
	t.Helper()
	const timeout, many = 6 * time.Second, 8
	srv := fixture.NewEnsemble(t)
	other := fixture.Connect(t, srv.Config(timeout, srv.A))
	cfg := srv.Config(timeout, srv.B)
	cfg.SuspendEnds = true
	s := fixture.Connect(t, cfg)
	beside := fixture.Acquire(t, fixture.MutexOn(s, "/beside"))
	var holds []*session.Entry
	var turns []<-chan fixture.Granted
	for i := range many {
		holds = append(holds, fixture.Acquire(t, fixture.MutexOn(other, fmt.Sprintf("/m%d", i))))
		turns = append(turns, fixture.AcquireLater(t.Context(), fixture.MutexOn(s, fmt.Sprintf("/m%d", i))))
	}
	synctest.Wait()
	leave := func(when bool, entries ...*session.Entry) {
		for _, e := range entries {
			if when {
				require.NoError(t, e.Leave())
			}
		}
	}
	for _, e := range holds {
		_, err := other.Conn().SetACL(e.Path(), zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
		require.NoError(t, err)
		leave(gone, e)
	}
	fixture.Pass(found(timeout))
	for i, turn := range turns {
		require.NotEmpty(t, turn, i)
		got := <-turn
		require.Equal(t, gone, got.Err == nil, got.Err)
		require.Equal(t, !gone, errors.Is(got.Err, zk.ErrNoAuth), got.Err)
		leave(gone, got.Entry)
	}
	leave(!gone, holds...)
	require.NoError(t, beside.Leave())
	require.Len(t, srv.Dialled(), 2)
}

// Twice a session timeout an audit of a waiter takes a heartbeat's place, and a server that
// tells everything is not left.
func TestAuditsOfAWaiter(t *testing.T) {
	const timeout = 6 * time.Second
	synctest.Test(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		other, s := fixture.TwoClients(t, srv, timeout)
		e := fixture.Acquire(t, fixture.MutexOn(other, "/m"))
		ctx, cancel := context.WithCancel(t.Context())
		turn := fixture.AcquireLater(ctx, fixture.MutexOn(s, "/m"))
		synctest.Wait()
		queue := srv.Children("/m")
		own := "/m/" + queue[slices.IndexFunc(queue, func(name string) bool { return "/m/"+name != e.Path() })]
		var audits atomic.Int32 // of the waiter: both znodes in one transaction
		srv.OnWrite(func(frame []byte) error {
			if opOf(frame) == proto.OpMulti && bytes.Contains(frame, []byte(e.Path())) && bytes.Contains(frame, []byte(own)) {
				audits.Add(1)
			}
			return nil
		})
		fixture.Pass(10*timeout + time.Millisecond)
		srv.OnWrite(nil)
		require.InDelta(t, 10*zkutil.AuditsPerTimeout, audits.Load(), 1)
		require.LessOrEqual(t, len(srv.Log.Requests(zktest.OpMulti)), 2*10*zkutil.BeatsPerTimeout)
		require.Len(t, srv.Dialled(), 2)
		cancel()
		require.Error(t, (<-turn).Err)
		require.NoError(t, e.Leave())
		fixture.Pass(time.Millisecond)
		over := time.Now()
		fixture.Pass(10 * timeout)
		require.Empty(t, fixture.Times(srv.Log.Requests(zktest.OpMulti), over), "nobody waits for anything")
	})
}
