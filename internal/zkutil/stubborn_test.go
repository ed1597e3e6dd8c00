package zkutil

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
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

// A dialer of the user's that ignores its timeout does not hang Close, which says what is
// still running. What it brings when it comes back is closed.
func TestCloseWhileADialerHangs(t *testing.T) {
	for name, connected := range map[string]bool{"on the first connection": false, "on another": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newEnsemble(t)
				released := make(chan struct{})
				var stuck atomic.Bool
				cfg := srv.config(6 * time.Second)
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
					_, err := Connect(ctx, cfg)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Less(t, time.Since(start), 13*time.Second)
					close(released)
					synctest.Wait()
					require.Zero(t, srv.open())
					return
				}
				s, err := Connect(t.Context(), cfg)
				require.NoError(t, err)
				e := acquire(t, mutexOn(s, "/m"))
				stuck.Store(true)
				srv.Disconnect()
				turn := acquireLater(t.Context(), mutexOn(s, "/m"))
				go func() { _, _, _ = s.Conn().Get("/m") }() // past the gate
				pass(time.Second)
				start := time.Now()
				require.ErrorContains(t, s.Close(), "a dialer or a host provider")
				require.Less(t, time.Since(start), 13*time.Second)
				require.ErrorIs(t, (<-turn).err, ErrClosed)
				require.ErrorIs(t, e.Leave(), ErrClosed)
				close(released)
				require.NoError(t, s.Close())
				require.Zero(t, srv.open())
			})
		})
	}
}

// A dialer that hangs for one server keeps nobody from another one, and not from that one
// for ever. However often it is tried, few dials hang at a time.
func TestDialerHangsForOneServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		released := make(chan struct{})
		var bad atomic.Value
		var hanging atomic.Int32
		bad.Store("")
		cfg := srv.config(6*time.Second, srv.a, srv.b)
		cfg.Dialer = stubborn(cfg.Dialer, func(address string) <-chan struct{} {
			if address != bad.Load() {
				return nil
			}
			hanging.Add(1)
			return released
		})
		s := connect(t, cfg)
		e := acquire(t, mutexOn(s, "/m"))
		left := s.Conn().Server()
		bad.Store(map[string]string{srv.a: srv.b, srv.b: srv.a}[left])
		srv.Disconnect()
		pass(6 * time.Second)
		require.Positive(t, hanging.Load())
		require.NoError(t, e.Context().Err(), "the other server serves")
		srv.Stop(left)
		pass(10 * time.Minute)
		require.LessOrEqual(t, hanging.Load(), int32(maxForeign))
		srv.Restart(left)
		bad.Store("")
		eventually(t, 10*time.Second, func() bool { return s.State() == Connected })
		close(released)
	})
}

// stubbornHosts is a host provider whose methods wait for as long as they like.
type stubbornHosts struct {
	zk.HostProvider
	stuck    atomic.Pointer[string] // the method that does
	released chan struct{}
}

func (h *stubbornHosts) wait(method string) {
	if stuck := h.stuck.Load(); stuck != nil && *stuck == method {
		<-h.released
	}
}

func (h *stubbornHosts) Next() (string, bool) {
	h.wait("Next")
	return h.HostProvider.Next()
}

func (h *stubbornHosts) Len() int {
	h.wait("Len")
	return h.HostProvider.Len()
}

func (h *stubbornHosts) Connected() {
	h.wait("Connected")
	h.HostProvider.Connected()
}

// Nor does a host provider.
func TestCloseWhileAHostProviderHangs(t *testing.T) {
	for _, method := range []string{"Next", "Len", "Connected"} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newEnsemble(t)
				provider := &stubbornHosts{HostProvider: newHosts(t), released: make(chan struct{})}
				cfg := srv.config(6 * time.Second)
				cfg.Hosts = provider
				s, err := Connect(t.Context(), cfg)
				require.NoError(t, err)
				provider.stuck.Store(&method)
				srv.Disconnect()
				turn := acquireLater(t.Context(), mutexOn(s, "/m"))
				pass(5 * time.Second)
				start := time.Now()
				require.ErrorContains(t, s.Close(), "a dialer or a host provider")
				require.Less(t, time.Since(start), 13*time.Second)
				require.ErrorIs(t, (<-turn).err, ErrClosed)
				close(provider.released)
				require.NoError(t, s.Close())
				require.Zero(t, srv.open())
			})
		})
	}
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

// Close is bounded even where the user's connection can't be closed. If it hangs in a goroutine
// of zk.Conn's that nobody waits for, Close does not notice.
func TestCloseWhileAConnectionHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		released := make(chan struct{})
		cfg := srv.config(6 * time.Second)
		dial := cfg.Dialer
		cfg.Dialer = func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := dial(network, address, timeout)
			return stubbornConn{conn, released}, err
		}
		s, err := Connect(t.Context(), cfg)
		require.NoError(t, err)
		start := time.Now()
		err = s.Close()
		require.Less(t, time.Since(start), 40*time.Second)
		close(released)
		if err != nil {
			require.ErrorContains(t, err, "the connection is still being closed")
		}
		require.NoError(t, s.Close())
	})
}
