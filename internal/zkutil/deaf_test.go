package zkutil

import (
	"context"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// refuseWatches makes server B answer every request to set watches again with an error.
func refuseWatches(srv *ensemble, late time.Duration) {
	const throttled = -127
	srv.onRequest(func(r zktest.Request) zktest.Fault {
		if r.Op == zktest.OpSetWatches && r.Server == srv.b {
			return zktest.Fault{Delay: late, Refusal: throttled}
		}
		return zktest.Fault{}
	})
}

// A server goes on refusing to set the watches again, at once or some time later. It serves
// everything else, and nobody on it stays deaf.
func TestWatchesRefusedForGood(t *testing.T) {
	const timeout = 6 * time.Second
	tests := map[string]func(t *testing.T, srv *ensemble, other, s *Session, refuse func()){
		"a hold stands and is given back": func(t *testing.T, srv *ensemble, _, s *Session, refuse func()) {
			t.Helper()
			e := acquire(t, mutexOn(s, "/m"))
			refuse()
			pass(5 * timeout)
			require.Less(t, len(srv.log.Requests(zktest.OpSetWatches)), 60, "connections")
			require.NoError(t, context.Cause(e.Context()))
			leaving := time.Now()
			require.NoError(t, e.Leave())
			require.Less(t, time.Since(leaving), 2*time.Second)
		},
		"a free lock is acquired": func(t *testing.T, _ *ensemble, _, s *Session, refuse func()) {
			t.Helper()
			e := acquire(t, mutexOn(s, "/m")) // so that there is a watch
			refuse()
			pass(time.Second)
			acquiring := time.Now()
			free := acquire(t, mutexOn(s, "/free"))
			require.Less(t, time.Since(acquiring), 3*time.Second)
			require.NoError(t, free.Leave())
			require.NoError(t, e.Leave())
		},
		"a waiter is told": func(t *testing.T, _ *ensemble, other, s *Session, refuse func()) {
			t.Helper()
			e := acquire(t, mutexOn(other, "/m"))
			turn := acquireLater(t.Context(), mutexOn(s, "/m"))
			synctest.Wait()
			refuse()
			pass(2 * timeout)
			require.NoError(t, e.Leave())
			pass(timeout)
			require.NotEmpty(t, turn)
			got := <-turn
			require.NoError(t, got.err)
			require.NoError(t, got.entry.Leave())
		},
		"a holder is asked": func(t *testing.T, _ *ensemble, other, s *Session, refuse func()) {
			t.Helper()
			e := acquire(t, mutexOn(s, "/m"))
			refuse()
			pass(timeout / 2)
			require.NoError(t, other.Revoke(t.Context(), e.Path()))
			pass(timeout)
			require.True(t, isClosed(e.Revoked()))
			require.NoError(t, e.Leave())
		},
		"an observer sees": func(t *testing.T, _ *ensemble, other, s *Session, refuse func()) {
			t.Helper()
			e := acquire(t, mutexOn(other, "/m"))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			leaders := Observe(ctx, mutexOn(s, "/m"), func(p Participant) string { return p.Path })
			require.Equal(t, e.Path(), <-leaders)
			synctest.Wait()
			refuse()
			pass(timeout / 2)
			require.NoError(t, e.Leave())
			leaving := time.Now()
			require.Empty(t, <-leaders)
			require.Less(t, time.Since(leaving), timeout)
		},
	}
	for name, test := range tests {
		for _, late := range []time.Duration{0, 5 * time.Millisecond, 500 * time.Millisecond} {
			t.Run(name+" "+late.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := newEnsemble(t)
					other, s := twoClients(t, srv, timeout)
					test(t, srv, other, s, func() {
						refuseWatches(srv, late)
						srv.Disconnect(sessionID(s))
					})
				})
			})
		}
	}
}

// The session's end was asked for before the refusal came: its answer still comes.
func TestRefusedWatchesDoNotCutAClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := lineOver(t, slices.Concat(greeting(7), answer(7, 99, proto.CodeOperationTimeout), answer(8, 100, proto.CodeOK)))
		l.wire.watches[watchKey{"/a", watchData}] = struct{}{}
		l.wire.patience = func() time.Duration { return time.Second }
		l.wire.failed = func(string, error) {}
		_, err := io.ReadFull(l, make([]byte, len(greeting(7))))
		require.NoError(t, err)
		_, err = l.Write(setWatches)
		require.NoError(t, err)
		_, err = l.Write(proto.NewEncoder().Int32(8).Int32(proto.OpCloseSession).Frame())
		require.NoError(t, err)
		_, err = io.ReadFull(l, make([]byte, len(answer(7, 99, 0))))
		require.NoError(t, err)
		pass(time.Minute)
		_, err = io.ReadFull(l, make([]byte, len(answer(8, 100, 0))))
		require.NoError(t, err)
		l.wire.shut()
	})
}

// A holder can't read its znode any more, because somebody has taken the right away or for
// one odd answer. It goes on, its session's other holds too, until its znode goes, and finds
// that out: no event tells of a znode that may not be read.
func TestUnreadableZnodeIsDeleted(t *testing.T) {
	const timeout = 6 * time.Second
	noRight := func(t *testing.T, _ *ensemble, other *zk.Conn, znode string) {
		t.Helper()
		_, err := other.SetACL(znode, zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
		require.NoError(t, err)
	}
	oneAnswer := func(_ *testing.T, srv *ensemble, _ *zk.Conn, _ string) {
		srv.once(zktest.OpGetData, zktest.Fault{Refusal: zktest.RefuseNoAuth})
	}
	tests := map[string]struct {
		hide      func(t *testing.T, srv *ensemble, other *zk.Conn, znode string)
		reconnect bool
	}{
		"no right":                  {noRight, false},
		"no right and a reconnect":  {noRight, true},
		"one answer at a reconnect": {oneAnswer, true},
	}
	for name, tt := range tests {
		for _, pace := range []time.Duration{50 * time.Millisecond, time.Minute} {
			t.Run(name+" "+pace.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := newEnsemble(t)
					other := connect(t, srv.config(timeout, srv.a))
					cfg := srv.config(timeout, srv.b)
					cfg.Retry = Retry{InitialInterval: pace}.WithDefaults()
					s := connect(t, cfg)
					e, beside := acquire(t, mutexOn(s, "/m")), acquire(t, mutexOn(s, "/beside"))
					tt.hide(t, srv, other.Conn(), e.Path())
					pass(2 * timeout)
					if tt.reconnect {
						srv.Disconnect(sessionID(s))
						pass(2 * timeout)
					}
					require.NoError(t, context.Cause(e.Context()))
					srv.Delete(e.Path())
					second := acquire(t, mutexOn(other, "/m"))
					pass(2 * timeout / beatsPerTimeout)
					require.ErrorIs(t, context.Cause(e.Context()), ErrNodeDeleted)
					require.ErrorIs(t, e.Leave(), ErrNodeDeleted)
					require.NoError(t, second.Leave())
					require.NoError(t, beside.Leave())
				})
			})
		}
	}
}

// One odd answer to a heartbeat costs no lease, even where the root may not be read.
func TestHeartbeatRefusedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		e := acquire(t, mutexOn(s, "/m"))
		odd := true
		srv.onRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpMulti && (odd || r.Path == "/") {
				odd = false
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		pass(time.Minute)
		require.NoError(t, context.Cause(e.Context()))
		require.NoError(t, e.Leave())
	})
}

// A waiter whose server has refused the watches does not hear that its own znode is gone. It
// looks before it takes its turn.
func TestNoTurnOnAGoneZnode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		other, s := twoClients(t, srv, time.Minute)
		e := acquire(t, mutexOn(other, "/m"))
		ctx, cancel := context.WithCancel(t.Context())
		between := acquireLater(ctx, mutexOn(other, "/m"))
		synctest.Wait()
		turn := acquireLater(t.Context(), mutexOn(s, "/m"))
		synctest.Wait()
		refuseWatches(srv, 0)
		srv.Stop(srv.b)
		cancel()
		require.Error(t, (<-between).err) // so that the waiter sets a new watch, on the holder
		srv.Restart(srv.b)
		pass(2 * time.Second)
		queue := srv.Children("/m")
		require.Len(t, queue, 2)
		own := "/m/" + queue[slices.IndexFunc(queue, func(name string) bool { return "/m/"+name != e.Path() })]
		srv.Delete(own)
		require.NoError(t, e.Leave())
		pass(time.Second)
		got := <-turn
		require.NoError(t, got.err)
		require.NotEqual(t, own, got.entry.Path(), "granted by a znode that is gone")
		require.NoError(t, got.entry.Leave())
	})
}

// A heartbeat finds that the znode of a hold is gone, which no event has told.
func TestHeartbeatFindsTheZnodeGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		e := acquire(t, mutexOn(s, "/m"))
		srv.onRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetData && r.Path == e.Path() {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		srv.Disconnect(sessionID(s))
		pass(2 * time.Second)
		srv.Delete(e.Path())
		pass(2 * time.Second)
		require.ErrorIs(t, e.Leave(), ErrNodeDeleted)
	})
}
