package zkutil

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// every returns n moments with one period between them, from the first on.
func every(first, period time.Duration, n int) []time.Duration {
	at := make([]time.Duration, n)
	for i := range at {
		at[i] = first + time.Duration(i)*period
	}
	return at
}

func TestHeartbeatEverySixthWhileHeld(t *testing.T) {
	for _, timeout := range []time.Duration{1200 * time.Millisecond, 6 * time.Second, 60 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			srv := newEnsemble(t)
			s := connect(t, srv.config(timeout))
			start := time.Now()
			e := acquire(t, mutexOn(s, "/m"))
			pass(2*timeout + timeout/12)
			require.Equal(t, every(timeout/6, timeout/6, 12), times(srv.log.Requests(zktest.OpMulti), start))
			for _, r := range srv.log.Requests(zktest.OpMulti) {
				require.Equal(t, e.Path(), r.Path, "the heartbeat checks a znode of ours")
			}
			require.NoError(t, e.Leave())
			held := len(srv.log.Requests(zktest.OpMulti))
			pass(5 * timeout)
			require.Len(t, srv.log.Requests(zktest.OpMulti), held, "heartbeat of an idle session")
		})
	}
}

func TestHeartbeatEverySixthWhileAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		const timeout = 6 * time.Second
		holder, waiter := connect(t, srv.config(timeout)), connect(t, srv.config(timeout))
		e := acquire(t, mutexOn(holder, "/m"))
		start := time.Now()
		turn := acquireLater(t.Context(), mutexOn(waiter, "/m"))
		pass(timeout + timeout/12)
		var beats []zktest.Request
		for _, r := range srv.log.Requests(zktest.OpMulti) {
			if r.Session == sessionID(waiter) {
				beats = append(beats, r)
			}
		}
		require.Equal(t, every(timeout/6, timeout/6, 6), times(beats, start))
		require.NoError(t, e.Leave())
		got := <-turn
		require.NoError(t, got.err)
		require.NoError(t, got.entry.Leave())
	})
}

func TestOneHeartbeatForAllHoldsOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		for _, dir := range []string{"/a", "/b", "/c"} {
			e := acquire(t, mutexOn(s, dir))
			defer func() { require.NoError(t, e.Leave()) }()
		}
		start := time.Now()
		pass(5500 * time.Millisecond)
		require.Equal(t, every(time.Second, time.Second, 5), times(srv.log.Requests(zktest.OpMulti), start))
	})
}

func TestNoHeartbeatWhileIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		connect(t, srv.config(6*time.Second))
		pass(time.Minute)
		require.Empty(t, srv.log.Requests(zktest.OpMulti))
	})
}

// Then the watches are checked now and then, and that is all.
func TestNoHeartbeatWhileOtherWritesFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		e := acquire(t, mutexOn(s, "/m"))
		srv.Put("/other", nil)
		for range 100 {
			pass(900 * time.Millisecond)
			_, err := do(t.Context(), s, request[*zk.Stat]{write: true, run: func(conn *zk.Conn) (*zk.Stat, error) {
				return conn.Set("/other", nil, -1)
			}})
			require.NoError(t, err)
			require.Equal(t, time.Now().Add(4*time.Second), e.TrustedUntil(), "a write of ours is a proof")
		}
		require.LessOrEqual(t, len(srv.log.Requests(zktest.OpMulti)), 15*auditsPerTimeout)
		written := time.Now()
		pass(1100 * time.Millisecond)
		beats := srv.log.Requests(zktest.OpMulti)
		require.Equal(t, written.Add(time.Second), beats[len(beats)-1].Time)
		require.NoError(t, e.Leave())
	})
}

// A refused write says that the line works, and nothing about the session.
func TestRefusedWriteProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		e := acquire(t, mutexOn(s, "/m"))
		proven := e.TrustedUntil()
		pass(500 * time.Millisecond)
		_, err := do(t.Context(), s, request[struct{}]{write: true, run: func(conn *zk.Conn) (struct{}, error) {
			return struct{}{}, conn.Delete("/none", -1)
		}})
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.Equal(t, proven, e.TrustedUntil())
		require.NoError(t, e.Leave())
	})
}

// A read proves nothing: a server that is cut off answers it.
func TestReadProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		e := acquire(t, mutexOn(s, "/m"))
		proven := e.TrustedUntil()
		pass(500 * time.Millisecond)
		_, err := mutexOn(s, "/m").Participants(t.Context())
		require.NoError(t, err)
		require.Equal(t, proven, e.TrustedUntil())
		require.NoError(t, e.Leave())
	})
}

// The znode that the heartbeat checks may be gone: then its hold ends, and the next
// heartbeat checks another.
func TestHeartbeatMissesOurZnode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		e := acquire(t, mutexOn(s, "/m"))
		srv.DropEvent(1, sessionID(s)) // as if the server had lost the watch
		srv.Delete(e.Path())
		start := time.Now()
		at, cause := ended(t, e)
		require.ErrorIs(t, cause, ErrNodeDeleted)
		require.Equal(t, time.Second, at.Sub(start))
		require.ErrorIs(t, e.Leave(), ErrNodeDeleted)
	})
}
