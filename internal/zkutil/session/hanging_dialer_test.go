package session_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// stubborn makes a dialer that ignores its timeout for as long as stuck says.
func stubborn(dial zk.Dialer, stuck func(address string) <-chan struct{}) zk.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		if released := stuck(address); released != nil {
			<-released
		}
		return dial(network, address, timeout)
	}
}

// A dialer of the user's that ignores its timeout does not hang Close, which says what is still running. A connection
// that it returns later is closed.
func TestCloseWhileADialerHangs(t *testing.T) {
	for name, connected := range map[string]bool{"on the first connection": false, "on another": true} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				released := make(chan struct{})
				var stuck atomic.Bool
				cfg := srv.Config(6 * time.Second)
				cfg.Dialer = stubborn(cfg.Dialer, func(string) <-chan struct{} {
					if stuck.Load() {
						return released
					}
					return nil
				})
				if !connected {
					stuck.Store(true)
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					defer cancel()
					start := time.Now()
					_, err := session.Connect(ctx, cfg)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Less(t, time.Since(start), 13*time.Second)
					close(released)
					synctest.Wait()
					require.Zero(t, srv.Open())
					return
				}
				s, err := session.Connect(t.Context(), cfg)
				require.NoError(t, err)
				e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
				stuck.Store(true)
				srv.Disconnect()
				turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
				go func() { _, _, _ = s.Conn().Get("/m") }() // past the gate
				bubble.Pass(time.Second)
				start := time.Now()
				require.ErrorContains(t, s.Close(), "a dialer, or the lookup")
				require.Less(t, time.Since(start), 13*time.Second)
				require.ErrorIs(t, (<-turn).Err, zkutil.ErrClosed)
				require.ErrorIs(t, e.Leave(), zkutil.ErrClosed)
				close(released)
				require.NoError(t, s.Close())
				require.Zero(t, srv.Open())
			})
		})
	}
}

// A dialer that hangs for one server keeps no client from another one, and not from that one for ever. However often it
// is tried, few dials hang at a time.
func TestDialerHangsForOneServer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		released := make(chan struct{})
		var bad atomic.Value
		var hanging atomic.Int32
		bad.Store("")
		cfg := srv.Config(6*time.Second, srv.A, srv.B)
		cfg.Dialer = stubborn(cfg.Dialer, func(address string) <-chan struct{} {
			if address != bad.Load() {
				return nil
			}
			hanging.Add(1)
			return released
		})
		s := fixture.Connect(t, cfg)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		left := s.Conn().Server()
		bad.Store(map[string]string{srv.A: srv.B, srv.B: srv.A}[left])
		srv.Disconnect()
		bubble.Pass(6 * time.Second)
		require.Positive(t, hanging.Load())
		require.NoError(t, e.Context().Err(), "the other server serves")
		srv.Stop(left)
		bubble.Pass(10 * time.Minute)
		require.LessOrEqual(t, hanging.Load(), int32(4))
		srv.Restart(left)
		bad.Store("")
		bubble.Eventually(t, 10*time.Second, func() bool { return s.State() == connstate.Connected })
		close(released)
	})
}

// stubbornConn is a connection whose Close never returns.
type stubbornConn struct {
	net.Conn
	released chan struct{}
}

func (c stubbornConn) Close() error {
	err := c.Conn.Close()
	<-c.released
	return err
}

// Close is bounded even where the user's connection can't be closed. If it hangs in a goroutine of zk.Conn's without a
// joiner, Close does not notice.
func TestCloseWhileAConnectionHangs(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		released := make(chan struct{})
		cfg := srv.Config(6 * time.Second)
		dial := cfg.Dialer
		cfg.Dialer = func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := dial(network, address, timeout)
			return stubbornConn{conn, released}, err
		}
		s, err := session.Connect(t.Context(), cfg)
		require.NoError(t, err)
		start := time.Now()
		err = s.Close()
		require.Less(t, time.Since(start), 40*time.Second)
		close(released)
		if err != nil {
			require.ErrorContains(t, err, "the connection is still closing")
		}
		require.NoError(t, s.Close())
	})
}

// hangingConn is a connection whose SetDeadline does not return while it hangs.
type hangingConn struct {
	net.Conn
	hangs    *atomic.Bool
	released chan struct{}
}

func (c hangingConn) SetDeadline(t time.Time) error {
	if c.hangs.Load() {
		<-c.released
	}
	return c.Conn.SetDeadline(t)
}

// A connection that hangs as it is dialled does not block the keeper. The hold ends in time, and Close is bounded.
func TestHoldEndsWhileADialledConnectionHangs(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		released, hangs := make(chan struct{}), new(atomic.Bool)
		cfg := srv.Config(timeout)
		dial := cfg.Dialer
		cfg.Dialer = func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := dial(network, address, timeout)
			return hangingConn{conn, hangs, released}, err
		}
		s, err := session.Connect(t.Context(), cfg)
		require.NoError(t, err)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		hangs.Store(true)
		start := time.Now()
		srv.Disconnect()
		at, cause := bubble.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrSessionLost)
		require.LessOrEqual(t, at.Sub(start), timeout*2/3)
		require.False(t, e.TrustedUntil().After(at))
		start = time.Now()
		require.ErrorContains(t, s.Close(), "the connection is still closing")
		require.Less(t, time.Since(start), 40*time.Second)
		close(released)
		require.NoError(t, s.Close())
	})
}

// A dialer that returns neither a connection nor an error fails, also when it returns late.
func TestDialerReturnsNothing(t *testing.T) {
	for _, late := range []time.Duration{0, time.Minute} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			cfg := srv.Config(6 * time.Second)
			var calls atomic.Int32
			cfg.Dialer = func(network, address string, timeout time.Duration) (net.Conn, error) {
				if calls.Add(1) == 1 {
					bubble.Pause(late)
					return nil, nil //nolint:nilnil // what no dialer should do
				}
				return srv.Dial(network, address, timeout)
			}
			s := fixture.Connect(t, cfg)
			require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
			bubble.Pass(2 * time.Minute)
		})
	}
}
