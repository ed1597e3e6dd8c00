package session_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// bounded is a holder whose servers grant different session timeouts, 30 s and less, and a client that waits for the lock.
type bounded struct {
	srv    *fixture.Ensemble
	holder *session.Session
	id     int64
	bounds unequalBounds
	entry  *session.Entry
	ended  chan time.Time // gets the time at which the hold ends
	turn   <-chan bubble.Outcome[*session.Entry]
	isCut  atomic.Bool // the holder's dials fail
}

func newBounded(t *testing.T, least time.Duration, opts ...zktest.Option) *bounded {
	t.Helper()
	b := &bounded{srv: fixture.NewEnsemble(t, opts...)}
	cfg := b.srv.Config(30*time.Second, b.srv.A, b.srv.B)
	cfg.Dialer = func(network, address string, timeout time.Duration) (net.Conn, error) {
		if b.isCut.Load() {
			return nil, fixture.ErrBroken
		}
		return b.srv.Dial(network, address, timeout)
	}
	b.holder = fixture.Connect(t, cfg)
	next := fixture.Connect(t, b.srv.Config(30*time.Second, b.srv.A, b.srv.B))
	b.id = fixture.SessionID(b.holder)
	b.bounds = grantUnequalBounds(t, b.srv, b.holder, least)
	b.entry = bubble.Acquire(t, fixture.MutexOn(b.holder, "/m").Acquire)
	b.ended = make(chan time.Time, 1)
	context.AfterFunc(b.entry.Context(), func() { b.ended <- time.Now() })
	b.turn = bubble.Start(t.Context(), fixture.MutexOn(next, "/m").Acquire)
	bubble.Pass(time.Second)
	return b
}

// requireOneHolder waits until the hold is lost, and requires that the next one begins later.
func (b *bounded) requireOneHolder(t *testing.T) {
	t.Helper()
	at := <-b.ended
	require.ErrorIs(t, context.Cause(b.entry.Context()), zkutil.ErrSessionLost)
	got := <-b.turn
	require.NoError(t, got.Err)
	require.Less(t, at, got.At, "two holders for %v", at.Sub(got.At))
	require.NoError(t, got.Lease.Leave())
	b.srv.Heal()
	b.isCut.Store(false)
}

var leastTimeouts = []time.Duration{4 * time.Second, 7 * time.Second, 15 * time.Second, 22 * time.Second}

// A server executes a handshake that the client gave up, after another server answered a later handshake.
func TestLateExecutionOfALostHandshake(t *testing.T) {
	for _, least := range leastTimeouts {
		testkit.Bubble(t, func(t *testing.T) {
			b := newBounded(t, least)
			b.srv.PartitionFrom(b.bounds.short, b.id)
			b.srv.Disconnect(b.id)
			bubble.Eventually(t, 10*time.Second, func() bool { return b.holder.State() == connstate.Suspended })
			bubble.Eventually(t, 20*time.Second, func() bool { return b.holder.State() == connstate.Connected })
			require.Equal(t, b.bounds.long, b.holder.Conn().Server())
			bubble.Pass(6 * time.Second)
			require.NoError(t, b.entry.Context().Err())
			b.isCut.Store(true)
			b.srv.HealSessions(b.id)
			bubble.Pass(time.Millisecond)
			b.srv.Partition(b.id)
			b.requireOneHolder(t)
		})
	}
}

// Of several handshakes without an answer, a server executed the first, and no server received the others. An answer on the
// connection before them is late.
func TestFirstOfSeveralLostHandshakes(t *testing.T) {
	for _, least := range leastTimeouts {
		testkit.Bubble(t, func(t *testing.T) {
			b := newBounded(t, least)
			b.srv.SlowCommits(9 * time.Second)
			var isRenewed atomic.Bool
			b.srv.Inject(func(r zktest.Request) zktest.Fault {
				switch {
				case r.Op != zktest.OpConnect || r.Session != b.id:
					return zktest.Fault{}
				case r.Server == b.bounds.short && isRenewed.CompareAndSwap(false, true):
					return zktest.Fault{Lost: zktest.ReplyLost}
				default:
					return zktest.Fault{Lost: zktest.RequestLost}
				}
			})
			bubble.Pass(7 * time.Second)
			b.srv.SlowCommits(0)
			b.requireOneHolder(t)
		})
	}
}

// lessGranted is a dialer to a server that grants a session less from its second handshake
// on.
func lessGranted(dial zk.Dialer, timeout time.Duration) zk.Dialer {
	handshakes := 0
	return mangle(dial, func(op int32, body []byte) []byte {
		if op != proto.OpCreateSession {
			return nil
		}
		if handshakes++; handshakes == 1 {
			return nil
		}
		return framed(lengthAt(body, 4, uint32(timeout/time.Millisecond)))
	})
}

// A later handshake of the same session grants less. From then on the server lets the
// session live for that alone, so a hold ends by it, though the proof before promised more.
func TestLessGrantedToTheSameSession(t *testing.T) {
	const before, after = 6 * time.Second, 3 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(before)
		cfg.Dialer = lessGranted(cfg.Dialer, after)
		s := fixture.Connect(t, cfg)
		id := fixture.SessionID(s)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		bubble.Pass(100 * time.Millisecond)
		srv.OnRequest(func(r zktest.Request) zktest.Fault { // no proof any more
			return fixture.Cut(r.Op == zktest.OpMulti, zktest.NoAnswer)
		})
		handshake := time.Now()
		srv.Disconnect()
		bubble.Eventually(t, time.Second, func() bool { return s.State() == connstate.Connected && s.Timeout() == after })
		require.Equal(t, id, fixture.SessionID(s))
		require.LessOrEqual(t, e.TrustedUntil().Sub(handshake), 2*after/3)
		at, cause := bubble.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrSessionLost)
		require.LessOrEqual(t, at.Sub(handshake), 2*after/3)
		require.Greater(t, at.Sub(handshake), after/3, "and no earlier than it has to")
	})
}
