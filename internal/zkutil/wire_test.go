package zkutil

import (
	"context"
	"encoding/binary"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A paused server accepts and does not answer: zk.Conn would wait for 26 s at T = 4 s.
func TestHangingHandshakeFailsAfterASixth(t *testing.T) {
	for _, timeout := range []time.Duration{1200 * time.Millisecond, 6 * time.Second, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			srv := newEnsemble(t)
			s := connect(t, srv.config(timeout, srv.a, srv.b))
			good, bad := srv.a, srv.b
			if srv.dialled()[0] == srv.b {
				good, bad = bad, good
			}
			srv.hang(bad) // the next in the round
			pass(time.Second)
			start := time.Now()
			srv.Disconnect()
			eventually(t, timeout, func() bool { return s.State() == Connected })
			require.InDelta(t, timeout/6, time.Since(start), float64(10*time.Millisecond))
			dials := srv.dialled()
			require.Equal(t, []string{bad, good}, dials[len(dials)-2:])
		})
	}
}

func TestConnectTellsWhyItFailed(t *testing.T) {
	for want, trouble := range map[string]func(srv *ensemble){
		"dial pipe: connection refused":               func(srv *ensemble) { srv.Stop(srv.a) },
		"handshake with pipe: read pipe: i/o timeout": func(srv *ensemble) { srv.hang(srv.a) },
		"dial pipe: i/o timeout":                      func(srv *ensemble) { srv.Partition() },
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := newEnsemble(t)
			trouble(srv)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := Connect(ctx, srv.config(6*time.Second))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, want)
		})
	}
}

// zk.Conn leaves one open per expiry.
func TestOneSocketIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		for range 50 {
			old := sessionID(s)
			srv.Expire(old)
			eventually(t, 5*time.Second, func() bool { return sessionID(s) != old && s.State() == Connected })
			require.Equal(t, 1, srv.open())
		}
		require.NoError(t, s.Close())
		require.Zero(t, srv.open())
	})
}

// The negotiated timeout counts, not the one asked for, and it may change with the
// session.
func TestTimeoutIsTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := newEnsemble(t, zktest.WithSessionTimeouts(12*time.Second, time.Minute))
		after := newEnsemble(t, zktest.WithSessionTimeouts(24*time.Second, time.Minute))
		after.Stop()
		after.Restart() // its zxid is ahead now
		cfg := before.config(6 * time.Second)
		cfg.Dialer = func(network, address string, timeout time.Duration) (net.Conn, error) {
			if conn, err := before.dial(network, address, timeout); err == nil {
				return conn, nil
			}
			return after.dial(network, address, timeout)
		}
		s := connect(t, cfg)
		require.Equal(t, 12*time.Second, s.Timeout())
		e := acquire(t, mutexOn(s, "/m"))
		require.Equal(t, 8*time.Second, time.Until(e.TrustedUntil()))
		before.Stop() // a new session with the servers that came in their place
		pass(2 * time.Second)
		require.Equal(t, 24*time.Second, s.Timeout())
	})
}

// The same session may be granted another timeout by each handshake.
func TestTimeoutOfOneSessionIsTheLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		cfg := srv.config(12 * time.Second)
		grants := []time.Duration{12 * time.Second, 6 * time.Second, 3 * time.Second, 9 * time.Second}
		handshakes := 0
		cfg.Dialer = mangle(cfg.Dialer, func(op int32, body []byte) []byte {
			if op != proto.OpCreateSession {
				return nil
			}
			handshakes++
			return framed(lengthAt(body, 4, uint32(grants[handshakes-1]/time.Millisecond)))
		})
		s := connect(t, cfg)
		id := sessionID(s)
		e := acquire(t, mutexOn(s, "/m"))
		least := grants[0]
		for i, granted := range grants {
			if i > 0 {
				// Between two heartbeats, because one that is just being sent waits for the next
				// connection, where another one is sent beside it.
				pass(least / beatsPerTimeout / 4)
				srv.Disconnect()
				eventually(t, time.Second, func() bool { return handshakes == i+1 && s.State() == Connected })
			}
			least = min(least, granted)
			require.Equal(t, id, sessionID(s))
			require.Equal(t, granted, s.Timeout())
			start := time.Now()
			pass(granted)
			require.NoError(t, e.Context().Err())
			require.LessOrEqual(t, time.Until(e.TrustedUntil()), 2*granted/3)
			require.GreaterOrEqual(t, len(times(srv.log.Requests(zktest.OpMulti), start)), beatsPerTimeout-1)
			if granted == least {
				require.LessOrEqual(t, len(times(srv.log.Requests(zktest.OpMulti), start)), beatsPerTimeout+1)
				require.Greater(t, time.Until(e.TrustedUntil()), granted/3)
			}
		}
		require.NoError(t, e.Leave())
	})
}

// opOf is the operation code of a frame that zk.Conn writes.
func opOf(frame []byte) int32 { return int32(binary.BigEndian.Uint32(frame[8:])) }

// A failing resend of credentials makes a bare zk.Conn wait for itself for good
// (go-zookeeper PR 163).
func TestFailedResendOfCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		cfg := srv.config(6 * time.Second)
		cfg.Auth = []Auth{{Scheme: "digest", Credential: []byte("user:password")}}
		s := connect(t, cfg)
		require.Len(t, srv.log.Requests(zktest.OpAuth), 1)
		failures := 2
		srv.mu.Lock()
		srv.onWrite = func(frame []byte) error {
			if len(frame) > 12 && opOf(frame) == proto.OpAuth && failures > 0 {
				failures--
				return errBroken
			}
			return nil
		}
		srv.mu.Unlock()
		srv.Disconnect()
		eventually(t, 10*time.Second, func() bool { return len(srv.log.Requests(zktest.OpAuth)) == 2 })
		require.Zero(t, failures)
		e := acquire(t, mutexOn(s, "/m"))
		require.NoError(t, e.Leave())
	})
}

// The credentials are sent before Connect returns, and again on every connection.
func TestCredentialsOnEveryConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		cfg := srv.config(6 * time.Second)
		cfg.Auth = []Auth{{"digest", []byte("a:a")}, {"digest", []byte("b:b")}}
		connect(t, cfg)
		require.Len(t, srv.log.Requests(zktest.OpAuth), 2)
		for n := 2; n <= 5; n++ {
			srv.Disconnect()
			pass(100 * time.Millisecond)
			require.Len(t, srv.log.Requests(zktest.OpAuth), 2*n)
		}
	})
}

// With a watch to set again too: its request waits for the answers to the credentials,
// and other answers for it.
func TestCredentialsAndWatchesOnAReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		cfg := srv.config(30 * time.Second)
		cfg.Auth = []Auth{{"digest", []byte("a:a")}, {"digest", []byte("b:b")}}
		s := connect(t, cfg)
		e := acquire(t, mutexOn(s, "/m"))
		for range 5 {
			start := time.Now()
			srv.Disconnect()
			synctest.Wait()
			require.NoError(t, read(t.Context(), s))
			require.Less(t, time.Since(start), 100*time.Millisecond)
			pass(time.Second)
		}
		require.Len(t, srv.log.Requests(zktest.OpSetWatches), 5)
		require.NoError(t, e.Leave())
	})
}

// A node changes while the connection is away, and answers with a newer zxid are on
// their way right at the reconnect: had zk.Conn seen one before it built setWatches,
// the server would find nothing to report, and the change would never be told.
func TestChangeInTheGapIsReported(t *testing.T) {
	for range shorter(100) {
		synctest.Test(t, func(t *testing.T) {
			srv := newEnsemble(t)
			s := connect(t, srv.config(6*time.Second))
			srv.Put("/node", []byte("old"))
			w, err := s.watch(t.Context(), "/node")
			require.NoError(t, err)
			for range 10 { // calls that go out as soon as the connection is back
				go func() {
					_, _ = do(t.Context(), s, request[node]{run: get("/node")})
				}()
			}
			srv.Stop(srv.a)
			for range 10 {
				go func() {
					_, _ = do(t.Context(), s, request[node]{run: get("/node")})
				}()
			}
			synctest.Wait()
			srv.Put("/node", []byte("new"))
			srv.Restart(srv.a)
			pass(2 * time.Second)
			require.True(t, w.hasFired(), "lost event")
			require.Equal(t, zk.EventNodeDataChanged, w.event)
		})
	}
}

// The same with requests that zk.Conn itself had in its queue: they bypass the gate.
func TestChangeInTheGapIsReportedBesideForeignCalls(t *testing.T) {
	for range shorter(100) {
		synctest.Test(t, func(t *testing.T) {
			srv := newEnsemble(t)
			s := connect(t, srv.config(6*time.Second))
			srv.Put("/node", []byte("old"))
			w, err := s.watch(t.Context(), "/node")
			require.NoError(t, err)
			restore := srv.hang(srv.a)
			srv.Disconnect()
			for range 10 {
				go func() { _, _, _ = s.Conn().Get("/node") }()
			}
			synctest.Wait()
			srv.Put("/node", []byte("new"))
			restore()
			srv.Disconnect()
			pass(4 * time.Second)
			require.True(t, w.hasFired(), "lost event")
		})
	}
}
