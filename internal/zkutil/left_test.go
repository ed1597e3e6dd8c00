package zkutil

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// leaveFrozenServer has a holder's server freeze, and requires that the client goes to the other one
// and keeps its lease. With stuckWrites more is written than the frozen connection takes.
func leaveFrozenServer(t *testing.T, stuckWrites bool) {
	t.Helper()
	const timeout = 6 * time.Second
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(timeout, srv.a, srv.b))
		srv.Put("/big", nil)
		e := acquire(t, mutexOn(s, "/m"))
		pass(2 * time.Second)
		from := s.Conn().Server()
		srv.Freeze(from)
		if stuckWrites {
			for range 8 {
				go func() { // ends when the connection is closed
					_, _ = s.Conn().Set("/big", make([]byte, 900<<10), -1)
				}()
			}
		}
		start := time.Now()
		eventually(t, 20*time.Second, func() bool { return s.State() == Connected && s.Conn().Server() != from })
		t.Logf("stuck writes %v: on the other server after %v, hold: %v", stuckWrites, time.Since(start), e.Context().Err())
		pass(timeout)
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Leave())
		srv.Heal()
	})
}

func TestLeaveAnIdleLine(t *testing.T)      { leaveFrozenServer(t, false) }
func TestLeaveWithAStuckWrite(t *testing.T) { leaveFrozenServer(t, true) }

// stuckConn is a connection whose writes block once stuck is set, until the write deadline or Close.
type stuckConn struct {
	net.Conn
	stuck    *atomic.Bool
	deadline atomic.Pointer[time.Time]
	closed   atomic.Bool
}

func (c *stuckConn) SetWriteDeadline(t time.Time) error {
	c.deadline.Store(&t)
	return c.Conn.SetWriteDeadline(t)
}
func (c *stuckConn) Close() error { c.closed.Store(true); return c.Conn.Close() }
func (c *stuckConn) Write(b []byte) (int, error) {
	for c.stuck.Load() {
		if d := c.deadline.Load(); c.closed.Load() || d != nil && !d.IsZero() && !time.Now().Before(*d) {
			return 0, net.ErrClosed
		}
		pass(time.Millisecond)
	}
	return c.Conn.Write(b)
}

// The client leaves a server to which it can't even write a ping, and keeps its lease.
func TestLeaveWithAStuckPing(t *testing.T) {
	const timeout = 6 * time.Second
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		cfg := srv.config(timeout, srv.a, srv.b)
		var latest atomic.Pointer[stuckConn]
		cfg.Dialer = func(n, a string, d time.Duration) (net.Conn, error) {
			c, err := srv.dial(n, a, d)
			if err != nil {
				return nil, err
			}
			conn := &stuckConn{Conn: c, stuck: new(atomic.Bool)}
			latest.Store(conn)
			return conn, nil
		}
		s := connect(t, cfg)
		e := acquire(t, mutexOn(s, "/m"))
		pass(2100 * time.Millisecond)
		from := s.Conn().Server()
		latest.Load().stuck.Store(true)
		srv.PartitionFrom(from, sessionID(s))
		start := time.Now()
		eventually(t, 30*time.Second, func() bool { return s.State() == Connected && s.Conn().Server() != from })
		t.Logf("on the other server after %v, hold: %v", time.Since(start), e.Context().Err())
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Leave())
		srv.Heal()
	})
}

// An answered sync on a connection that was left proves nothing: trust ends 2T/3 after the last
// committed write.
func TestSyncOnALeftLineProvesNothing(t *testing.T) {
	const timeout = 6 * time.Second
	for phase := time.Millisecond; phase < listsOf(timeout); phase += 100 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			srv := listening(t, timeout, phase)
			srv.Stop(srv.b)
			s := connect(t, srv.config(timeout, srv.a, srv.b))
			srv.Restart(srv.b)
			next := connect(t, srv.config(timeout, srv.b))
			id := sessionID(s)
			srv.PartitionFrom(srv.b, id)
			e := acquire(t, mutexOn(s, "/m"))
			turn := acquireLater(t.Context(), mutexOn(next, "/m"))
			pass(timeout/6 + time.Millisecond) // a heartbeat was committed just now
			proven := srv.lastWrite()
			srv.Isolate(srv.a)
			srv.Delay(zktest.OpSync, 1500*time.Millisecond, id)
			pass(timeout/6 - 5*time.Millisecond)
			synced := make(chan error, 1)
			go func() { _, err := s.Conn().Sync("/m"); synced <- err }()
			at, _ := ended(t, e)
			if err := <-synced; err != nil {
				t.Log(err) // its connection was left
			}
			got := <-turn
			require.NoError(t, got.err)
			t.Logf("phase %v: trusted for %v after the last committed write (want %v); second holder %v after the first ended", phase, at.Sub(proven), 2*timeout/3, got.at.Sub(at))
			if at.Sub(proven) > 2*timeout/3 {
				t.Errorf("sync was a proof")
			}
			if got.at.Before(at) {
				t.Errorf("TWO HOLDERS for %v", at.Sub(got.at))
			}
			_ = got.entry.Leave()
			srv.Heal()
		})
	}
}

// A late answer on the connection that was left must not lengthen the trust that a handshake with
// a lower bound, whose answer was lost, has shortened.
func TestLeftLineDoesNotUndoALostHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		var lost atomic.Bool
		cfg := srv.config(30*time.Second, srv.a, srv.b)
		cfg.Dialer = func(n, a string, d time.Duration) (net.Conn, error) {
			if lost.Load() {
				return nil, errBroken
			}
			return srv.dial(n, a, d)
		}
		s, next := connect(t, cfg), connect(t, srv.config(30*time.Second, srv.a, srv.b))
		id := sessionID(s)
		bounds := grantUnequalBounds(t, srv, s, 6*time.Second)
		e := acquire(t, mutexOn(s, "/m"))
		turn := acquireLater(t.Context(), mutexOn(next, "/m"))
		pass(time.Second)
		srv.SlowCommits(7 * time.Second)
		srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op != zktest.OpConnect || r.Session != id {
				return zktest.Fault{}
			}
			if r.Server == bounds.short && lost.CompareAndSwap(false, true) {
				return zktest.Fault{Lost: zktest.ReplyLost} // renewed, and the connection ends instead of an answer
			}
			return zktest.Fault{Lost: zktest.RequestLost}
		})
		for range 100 {
			pass(250 * time.Millisecond)
			s.mu.Lock()
			t.Logf("trust %v, connected %v, lost %v", time.Until(s.trust.until), s.connected, lost.Load())
			s.mu.Unlock()
			if lost.Load() {
				srv.SlowCommits(0)
			}
			if e.Context().Err() != nil {
				break
			}
		}
		at, cause := ended(t, e)
		require.ErrorIs(t, cause, ErrSessionLost)
		got := <-turn
		require.NoError(t, got.err)
		require.Less(t, at, got.at, "TWO HOLDERS for %v", at.Sub(got.at))
		_ = got.entry.Leave()
	})
}

// The answer of a server that grants much less is lost, and the client waits for that answer for
// longer than the session lives.
func TestLostAnswerOfMuchLowerBounds(t *testing.T) {
	for _, least := range []time.Duration{6 * time.Second, 5 * time.Second, 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			loseAnswerOfLowerBound(t, newEnsemble(t), least)
		})
	}
}

// After a suspension of the machine that the session has outlived, no grant is made for T/4. The
// client does not try all the time.
func TestProofsNearAGapArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		cfg := srv.config(30 * time.Second)
		var jump atomic.Int64
		cfg.Suspended = func() time.Duration { return time.Duration(jump.Load()) }
		s := connect(t, cfg)
		pass(10 * time.Second)
		jump.Store(int64(time.Hour)) // client and servers on one machine: their clocks stood still as well
		srv.Delay(zktest.OpMulti, time.Millisecond)
		start := time.Now()
		e := acquire(t, mutexOn(s, "/m"))
		t.Logf("acquired after %v, with %d multis and %d lists", time.Since(start), srv.log.Count(zktest.OpMulti), srv.log.Count(zktest.OpGetChildren2))
		require.Less(t, srv.log.Count(zktest.OpMulti), 50)
		require.Equal(t, 1, srv.log.Count(zktest.OpGetChildren2), "the queue was read again for a proof")
		require.NoError(t, e.Leave())
	})
}

// recordingConn is a connection that records whether it was closed. Reads end at once.
type recordingConn struct {
	net.Conn
	closed atomic.Bool
}

func (c *recordingConn) Read([]byte) (int, error)         { return 0, io.EOF }
func (c *recordingConn) Close() error                     { c.closed.Store(true); return nil }
func (c *recordingConn) SetReadDeadline(time.Time) error  { return nil }
func (c *recordingConn) SetDeadline(time.Time) error      { return nil }
func (c *recordingConn) SetWriteDeadline(time.Time) error { return nil }
func (c *recordingConn) Write(b []byte) (int, error)      { return len(b), nil }

// The connection that was left is closed when the session ends, even if zk.Conn and the keeper
// have given it up at the same time.
func TestLeftLineIsClosed(t *testing.T) {
	conn := &recordingConn{}
	w := &wire{
		now: time.Now, period: func() time.Duration { return time.Second }, patience: func() time.Duration { return time.Second },
		isSaving: func() bool { return true }, servers: func() int { return 2 },
		dial:   func(string, string, time.Duration) (net.Conn, error) { return conn, nil },
		failed: func(string, error) {}, greeted: func(int64, time.Duration, time.Time) time.Duration { return 6 * time.Second },
		watches: map[watchKey]struct{}{},
	}
	c, err := w.Dial("tcp", "x:1", 0)
	require.NoError(t, err)
	l := c.(*line)
	l.opened(1, 6*time.Second)
	require.NoError(t, l.send(7, proto.OpMulti, []byte("heartbeat")))
	_, err = l.Read(make([]byte, 4)) // the server hangs up: zk.Conn's reader ends
	require.ErrorIs(t, err, io.EOF)
	l.leave()                                    // the keeper, just then
	_ = l.Close()                                // zk.Conn, as it always does
	w.stopListening(time.Now().Add(time.Second)) // the next proof
	w.shut()
	require.True(t, conn.closed.Load(), "the socket is open after shut")
}
