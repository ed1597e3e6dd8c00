package session_test

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// leaveFrozenServer freezes a holder's server, and requires that the client changes to the other one and keeps its
// lease. With stuckWrites more is written than the frozen connection takes.
func leaveFrozenServer(t *testing.T, stuckWrites bool) {
	t.Helper()
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(timeout, srv.A, srv.B))
		srv.Put("/big", nil)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		bubble.Pass(2 * time.Second)
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
		bubble.Eventually(t, 20*time.Second, func() bool { return s.State() == connstate.Connected && s.Conn().Server() != from })
		t.Logf("stuck writes %v: on the other server after %v, hold: %v", stuckWrites, time.Since(start), e.Context().Err())
		bubble.Pass(timeout)
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
		bubble.Pause(time.Millisecond)
	}
	return c.Conn.Write(b)
}

// The client leaves a server to which it can't even write a ping, and keeps its lease.
func TestLeaveWithAStuckPing(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(timeout, srv.A, srv.B)
		var latest atomic.Pointer[stuckConn]
		cfg.Dialer = func(n, a string, d time.Duration) (net.Conn, error) {
			c, err := srv.Dial(n, a, d)
			if err != nil {
				return nil, err
			}
			conn := &stuckConn{Conn: c, stuck: new(atomic.Bool)}
			latest.Store(conn)
			return conn, nil
		}
		s := fixture.Connect(t, cfg)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		bubble.Pass(2100 * time.Millisecond)
		from := s.Conn().Server()
		latest.Load().stuck.Store(true)
		srv.PartitionFrom(from, fixture.SessionID(s))
		start := time.Now()
		bubble.Eventually(t, 30*time.Second, func() bool { return s.State() == connstate.Connected && s.Conn().Server() != from })
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
		testkit.Bubble(t, func(t *testing.T) {
			srv := listening(t, timeout, phase)
			srv.Stop(srv.B)
			s := fixture.Connect(t, srv.Config(timeout, srv.A, srv.B))
			srv.Restart(srv.B)
			next := fixture.Connect(t, srv.Config(timeout, srv.B))
			id := fixture.SessionID(s)
			srv.PartitionFrom(srv.B, id)
			e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
			turn := bubble.Start(t.Context(), fixture.MutexOn(next, "/m").Acquire)
			bubble.Pass(timeout/6 + time.Millisecond) // a heartbeat was committed just now
			proven := srv.LastWrite()
			srv.Isolate(srv.A)
			srv.Delay(zktest.OpSync, 1500*time.Millisecond, id)
			bubble.Pass(timeout/6 - 5*time.Millisecond)
			synced := make(chan error, 1)
			go func() { _, err := s.Conn().Sync("/m"); synced <- err }()
			at, _ := bubble.Ended(t, e)
			if err := <-synced; err != nil {
				t.Log(err) // its connection was left
			}
			got := <-turn
			require.NoError(t, got.Err)
			t.Logf("phase %v: trusted for %v after the last committed write (want %v); second holder %v after the first ended", phase, at.Sub(proven), 2*timeout/3, got.At.Sub(at))
			if at.Sub(proven) > 2*timeout/3 {
				t.Errorf("sync was a proof")
			}
			if got.At.Before(at) {
				t.Errorf("TWO HOLDERS for %v", at.Sub(got.At))
			}
			_ = got.Lease.Leave()
			srv.Heal()
		})
	}
}

// A late answer on the abandoned connection must not lengthen the trust that a handshake with a lower bound, whose
// answer was lost, shortened.
func TestLeftLineDoesNotUndoALostHandshake(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		var lost atomic.Bool
		cfg := srv.Config(30*time.Second, srv.A, srv.B)
		cfg.Dialer = func(n, a string, d time.Duration) (net.Conn, error) {
			if lost.Load() {
				return nil, fixture.ErrBroken
			}
			return srv.Dial(n, a, d)
		}
		s, next := fixture.Connect(t, cfg), fixture.Connect(t, srv.Config(30*time.Second, srv.A, srv.B))
		id := fixture.SessionID(s)
		bounds := grantUnequalBounds(t, srv, s, 6*time.Second)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		turn := bubble.Start(t.Context(), fixture.MutexOn(next, "/m").Acquire)
		bubble.Pass(time.Second)
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
			bubble.Pass(250 * time.Millisecond)
			if lost.Load() {
				srv.SlowCommits(0)
			}
			if e.Context().Err() != nil {
				break
			}
		}
		at, cause := bubble.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrSessionLost)
		got := <-turn
		require.NoError(t, got.Err)
		require.Less(t, at, got.At, "TWO HOLDERS for %v", at.Sub(got.At))
		_ = got.Lease.Leave()
	})
}

// The answer of a server that grants much less is lost, and the client waits for that answer for
// longer than the session lives.
func TestLostAnswerOfMuchLowerBounds(t *testing.T) {
	for _, least := range []time.Duration{6 * time.Second, 5 * time.Second, 4 * time.Second} {
		testkit.Bubble(t, func(t *testing.T) {
			loseAnswerOfLowerBound(t, fixture.NewEnsemble(t), least)
		})
	}
}

// After a suspension of the machine that the session survives, no grant is made for T/4. The client does not try all
// the time.
func TestProofsNearAGapArePaced(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(30 * time.Second)
		var jump atomic.Int64
		cfg.Suspended = func() time.Duration { return time.Duration(jump.Load()) }
		s := fixture.Connect(t, cfg)
		bubble.Pass(10 * time.Second)
		jump.Store(int64(time.Hour)) // client and servers on one machine: their clocks stood still as well
		srv.Delay(zktest.OpMulti, time.Millisecond)
		srv.Put("/m", nil)
		start := time.Now()
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		t.Logf("acquired after %v, with %d multis and %d lists", time.Since(start), srv.Log.Count(zktest.OpMulti), srv.Log.Count(zktest.OpGetChildren2))
		require.Less(t, srv.Log.Count(zktest.OpMulti), 50)
		require.Equal(t, 1, srv.Log.Count(zktest.OpGetChildren2), "the queue was read again for a proof")
		require.NoError(t, e.Leave())
	})
}

// The client leaves a server that answers nothing in time, and the hold stands, although the server still sends events.
func TestHolderLeavesAServerThatSendsEventsAlone(t *testing.T) {
	const timeout, watched = 6 * time.Second, 12
	path := func(i int) string { return fmt.Sprintf("/watched-%d", i) }
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(timeout, srv.A, srv.B))
		for i := range watched {
			srv.Put(path(i), nil)
			_, err := s.Watch(t.Context(), path(i))
			require.NoError(t, err)
		}
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		bubble.Pass(2 * time.Second)
		silent := s.Conn().Server()
		srv.OnRequest(func(r zktest.Request) zktest.Fault { return fixture.Cut(r.Server == silent, zktest.NoAnswer) })
		for i := range watched {
			bubble.Pass(timeout / watched)
			srv.Put(path(i), []byte("changed"))
		}
		require.NotEqual(t, silent, s.Conn().Server())
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Leave())
	})
}

// A heartbeat waits behind requests that the server takes long for, one after the other:
// their answers show that the line moves, so it is not closed.
func TestAnswersShowThatTheLineMoves(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(timeout))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		srv.Delay(zktest.OpGetData, 300*time.Millisecond)
		bubble.Pass(timeout/6 - 100*time.Millisecond)
		for range 9 { // the heartbeat, in 100 ms, is answered in 2.7 s
			go func() { _ = read(t.Context(), s, "/") }() // ends with its answer
		}
		bubble.Pass(timeout)
		require.Len(t, srv.Dialled(), 1)
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Leave())
	})
}
