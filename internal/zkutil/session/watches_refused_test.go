package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// refuseWatches makes server B answer every request to set watches again with an error.
func refuseWatches(srv *fixture.Ensemble, late time.Duration) {
	const throttled = -127
	srv.OnRequest(func(r zktest.Request) zktest.Fault {
		if r.Op == zktest.OpSetWatches && r.Server == srv.B {
			return zktest.Fault{Delay: late, Refusal: throttled}
		}
		return zktest.Fault{}
	})
}

// A server keeps refusing to set the watches again, at once or some time later. It serves everything else, and no
// client on it stays without events.
func TestWatchesRefusedForGood(t *testing.T) {
	const timeout = 6 * time.Second
	tests := map[string]func(t *testing.T, srv *fixture.Ensemble, other, s *session.Session, refuse func()){
		"a hold stands and is given back": func(t *testing.T, srv *fixture.Ensemble, _, s *session.Session, refuse func()) {
			t.Helper()
			e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
			refuse()
			bubble.Pass(5 * timeout)
			require.Less(t, len(srv.Log.Requests(zktest.OpSetWatches)), 60, "connections")
			require.NoError(t, context.Cause(e.Context()))
			leaving := time.Now()
			require.NoError(t, e.Leave())
			require.Less(t, time.Since(leaving), 2*time.Second)
		},
		"a free lock is acquired": func(t *testing.T, _ *fixture.Ensemble, _, s *session.Session, refuse func()) {
			t.Helper()
			e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire) // so that a watch exists
			refuse()
			bubble.Pass(time.Second)
			acquiring := time.Now()
			free := bubble.Acquire(t, fixture.MutexOn(s, "/free").Acquire)
			require.Less(t, time.Since(acquiring), 3*time.Second)
			require.NoError(t, free.Leave())
			require.NoError(t, e.Leave())
		},
		"a waiter is told": func(t *testing.T, _ *fixture.Ensemble, other, s *session.Session, refuse func()) {
			t.Helper()
			e := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
			turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
			synctest.Wait()
			refuse()
			bubble.Pass(2 * timeout)
			require.NoError(t, e.Leave())
			bubble.Pass(timeout)
			require.NotEmpty(t, turn)
			got := <-turn
			require.NoError(t, got.Err)
			require.NoError(t, got.Lease.Leave())
		},
		"a holder is asked": func(t *testing.T, _ *fixture.Ensemble, other, s *session.Session, refuse func()) {
			t.Helper()
			e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
			refuse()
			bubble.Pass(timeout / 2)
			require.NoError(t, queue.Revoke(t.Context(), other, e.Path()))
			bubble.Pass(timeout)
			require.True(t, bubble.IsClosed(e.Revoked()))
			require.NoError(t, e.Leave())
		},
		"an observer sees": func(t *testing.T, _ *fixture.Ensemble, other, s *session.Session, refuse func()) {
			t.Helper()
			e := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			leaders := queue.Observe(ctx, fixture.MutexOn(s, "/m").Queue, func(p queue.Participant) string { return p.Path })
			require.Equal(t, e.Path(), <-leaders)
			synctest.Wait()
			refuse()
			bubble.Pass(timeout / 2)
			require.NoError(t, e.Leave())
			leaving := time.Now()
			require.Empty(t, <-leaders)
			require.Less(t, time.Since(leaving), timeout)
		},
	}
	for name, test := range tests {
		for _, late := range []time.Duration{0, 5 * time.Millisecond, 500 * time.Millisecond} {
			t.Run(name+" "+late.String(), func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T) {
					srv := fixture.NewEnsemble(t)
					other, s := fixture.TwoClients(t, srv, timeout)
					test(t, srv, other, s, func() {
						refuseWatches(srv, late)
						srv.Disconnect(fixture.SessionID(s))
					})
				})
			})
		}
	}
}

// A holder can't read its znode any more, because its permission was revoked or because of a single odd answer. It
// continues, like the session's other holds, and notices the deletion of its znode, although no event reports changes
// of an unreadable znode.
func TestUnreadableZnodeIsDeleted(t *testing.T) {
	const timeout = 6 * time.Second
	noRight := func(t *testing.T, _ *fixture.Ensemble, other *zk.Conn, znode string) {
		t.Helper()
		_, err := other.SetACL(znode, zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
		require.NoError(t, err)
	}
	oneAnswer := func(_ *testing.T, srv *fixture.Ensemble, _ *zk.Conn, _ string) {
		srv.Once(zktest.OpGetData, zktest.Fault{Refusal: zktest.RefuseNoAuth})
	}
	tests := map[string]struct {
		hide      func(t *testing.T, srv *fixture.Ensemble, other *zk.Conn, znode string)
		reconnect bool
	}{
		"no right":                  {noRight, false},
		"no right and a reconnect":  {noRight, true},
		"one answer at a reconnect": {oneAnswer, true},
	}
	for name, tt := range tests {
		for _, pace := range []time.Duration{50 * time.Millisecond, time.Minute} {
			t.Run(name+" "+pace.String(), func(t *testing.T) {
				for range 10 { // because a heartbeat checks one znode of the two at random
					testkit.Bubble(t, func(t *testing.T) {
						srv := fixture.NewEnsemble(t)
						other := fixture.Connect(t, srv.Config(timeout, srv.A))
						cfg := srv.Config(timeout, srv.B)
						cfg.Retry = zkutil.Retry{InitialInterval: pace}.WithDefaults()
						s := fixture.Connect(t, cfg)
						e, beside := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire), bubble.Acquire(t, fixture.MutexOn(s, "/beside").Acquire)
						tt.hide(t, srv, other.Conn(), e.Path())
						bubble.Pass(2 * timeout)
						if tt.reconnect {
							srv.Disconnect(fixture.SessionID(s))
							bubble.Pass(2 * timeout)
						}
						require.NoError(t, context.Cause(e.Context()))
						srv.Delete(e.Path())
						second := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
						bubble.Pass(2 * timeout / core.BeatsPerTimeout)
						require.ErrorIs(t, context.Cause(e.Context()), zkutil.ErrNodeDeleted)
						require.ErrorIs(t, e.Leave(), zkutil.ErrNodeDeleted)
						require.NoError(t, second.Leave())
						require.NoError(t, beside.Leave())
					})
				}
			})
		}
	}
}

// One odd answer to a heartbeat costs no lease, even where the root may not be read.
func TestHeartbeatRefusedOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		odd := true
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpMulti && (odd || r.Path == "/") {
				odd = false
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		bubble.Pass(time.Minute)
		require.NoError(t, context.Cause(e.Context()))
		require.NoError(t, e.Leave())
	})
}

// A heartbeat finds the deletion of a hold's znode, without an event.
func TestHeartbeatFindsTheZnodeDeleted(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetData && r.Path == e.Path() {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		srv.Disconnect(fixture.SessionID(s))
		bubble.Pass(2 * time.Second)
		srv.Delete(e.Path())
		bubble.Pass(2 * time.Second)
		require.ErrorIs(t, e.Leave(), zkutil.ErrNodeDeleted)
	})
}
