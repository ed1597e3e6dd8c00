package session_test

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A paused server accepts and does not answer: zk.Conn would wait for 26 s at T = 4 s.
func TestHangingHandshakeFailsAfterASixth(t *testing.T) {
	for _, timeout := range []time.Duration{1200 * time.Millisecond, 6 * time.Second, 30 * time.Second} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(timeout, srv.A, srv.B))
			good, bad := srv.A, srv.B
			if srv.Dialled()[0] == srv.B {
				good, bad = bad, good
			}
			srv.Hang(bad) // the next in the round
			bubble.Pass(time.Second)
			start := time.Now()
			srv.Disconnect()
			bubble.Eventually(t, timeout, func() bool { return s.State() == connstate.Connected })
			require.InDelta(t, timeout/6, time.Since(start), float64(10*time.Millisecond))
			dials := srv.Dialled()
			require.Equal(t, []string{bad, good}, dials[len(dials)-2:])
		})
	}
}

func TestConnectTellsWhyItFailed(t *testing.T) {
	for want, trouble := range map[string]func(srv *fixture.Ensemble){
		"dial pipe: connection refused":               func(srv *fixture.Ensemble) { srv.Stop(srv.A) },
		"handshake with pipe: read pipe: i/o timeout": func(srv *fixture.Ensemble) { srv.Hang(srv.A) },
		"dial pipe: i/o timeout":                      func(srv *fixture.Ensemble) { srv.Partition() },
	} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			trouble(srv)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := session.Connect(ctx, srv.Config(6*time.Second))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, want)
		})
	}
}

// zk.Conn leaves one open per expiry.
func TestOneSocketIsOpen(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		for range 50 {
			old := fixture.SessionID(s)
			srv.Expire(old)
			bubble.Eventually(t, 5*time.Second, func() bool { return fixture.SessionID(s) != old && s.State() == connstate.Connected })
			require.Equal(t, 1, srv.Open())
		}
		require.NoError(t, s.Close())
		require.Zero(t, srv.Open())
	})
}

// The negotiated timeout counts, not the one asked for, and it may change with the
// session.
func TestTimeoutIsTheServers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		before := fixture.NewEnsemble(t, zktest.WithSessionTimeouts(12*time.Second, time.Minute))
		after := fixture.NewEnsemble(t, zktest.WithSessionTimeouts(24*time.Second, time.Minute))
		after.Stop()
		after.Restart() // its zxid is ahead now
		cfg := before.Config(6 * time.Second)
		cfg.Dialer = func(network, address string, timeout time.Duration) (net.Conn, error) {
			if conn, err := before.Dial(network, address, timeout); err == nil {
				return conn, nil
			}
			return after.Dial(network, address, timeout)
		}
		s := fixture.Connect(t, cfg)
		require.Equal(t, 12*time.Second, s.Timeout())
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.Equal(t, 8*time.Second, time.Until(e.TrustedUntil()))
		before.Stop() // a new session with the servers that replaced them
		bubble.Pass(2 * time.Second)
		require.Equal(t, 24*time.Second, s.Timeout())
	})
}

// The same session may be granted another timeout by each handshake.
func TestTimeoutOfOneSessionIsTheLatest(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(12 * time.Second)
		grants := []time.Duration{12 * time.Second, 6 * time.Second, 3 * time.Second, 9 * time.Second}
		handshakes := 0
		cfg.Dialer = mangle(cfg.Dialer, func(op int32, body []byte) []byte {
			if op != proto.OpCreateSession {
				return nil
			}
			handshakes++
			return framed(lengthAt(body, 4, uint32(grants[handshakes-1]/time.Millisecond)))
		})
		s := fixture.Connect(t, cfg)
		id := fixture.SessionID(s)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		least := grants[0]
		for i, granted := range grants {
			if i > 0 {
				// Between two heartbeats, because one that is just being sent waits for the next
				// connection, where another one is sent beside it.
				bubble.Pass(least / core.BeatsPerTimeout / 4)
				srv.Disconnect()
				bubble.Eventually(t, time.Second, func() bool { return handshakes == i+1 && s.State() == connstate.Connected })
			}
			least = min(least, granted)
			require.Equal(t, id, fixture.SessionID(s))
			require.Equal(t, granted, s.Timeout())
			start := time.Now()
			bubble.Pass(granted)
			require.NoError(t, e.Context().Err())
			require.LessOrEqual(t, time.Until(e.TrustedUntil()), 2*granted/3)
			require.GreaterOrEqual(t, len(fixture.Times(srv.Log.Requests(zktest.OpMulti), start)), core.BeatsPerTimeout-1)
			if granted == least {
				require.LessOrEqual(t, len(fixture.Times(srv.Log.Requests(zktest.OpMulti), start)), core.BeatsPerTimeout+2)
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
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(6 * time.Second)
		cfg.Auth = []session.Auth{{Scheme: "digest", Credential: []byte("user:password")}}
		s := fixture.Connect(t, cfg)
		require.Len(t, srv.Log.Requests(zktest.OpAuth), 1)
		failures := 2
		srv.OnWrite(func(frame []byte) error {
			if len(frame) > 12 && opOf(frame) == proto.OpAuth && failures > 0 {
				failures--
				return fixture.ErrBroken
			}
			return nil
		})
		srv.Disconnect()
		bubble.Eventually(t, 10*time.Second, func() bool { return len(srv.Log.Requests(zktest.OpAuth)) == 2 })
		require.Zero(t, failures)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.NoError(t, e.Leave())
	})
}

// The credentials are sent before Connect returns, and again on every connection.
func TestCredentialsOnEveryConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(6 * time.Second)
		cfg.Auth = []session.Auth{{"digest", []byte("a:a")}, {"digest", []byte("b:b")}}
		fixture.Connect(t, cfg)
		require.Len(t, srv.Log.Requests(zktest.OpAuth), 2)
		for n := 2; n <= 5; n++ {
			srv.Disconnect()
			bubble.Pass(2 * time.Second)
			require.Len(t, srv.Log.Requests(zktest.OpAuth), 2*n)
		}
	})
}

// With a watch to set again too: its request waits for the answers to the credentials,
// and other answers for it.
func TestCredentialsAndWatchesOnAReconnect(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(30 * time.Second)
		cfg.Auth = []session.Auth{{"digest", []byte("a:a")}, {"digest", []byte("b:b")}}
		s := fixture.Connect(t, cfg)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		_, _, _, err := s.Conn().GetW("/m") // of the user's
		require.NoError(t, err)
		for range 5 {
			start := time.Now()
			srv.Disconnect()
			synctest.Wait()
			require.NoError(t, read(t.Context(), s, "/"))
			require.Less(t, time.Since(start), 100*time.Millisecond)
			bubble.Pass(time.Second)
		}
		require.Len(t, srv.Log.Requests(zktest.OpSetWatches), 5)
		require.NoError(t, e.Leave())
	})
}

// A node changes while the connection is away, and answers with a newer zxid are on their way right at the reconnect.
// If zk.Conn saw one before it built setWatches, the server would find nothing to report, and the change would never be
// reported.
func TestChangeInTheGapIsReported(t *testing.T) {
	for range testkit.Shorter(100, 10) {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(6*time.Second))
			srv.Put("/node", []byte("old"))
			_, _, events, err := s.Conn().GetW("/node")
			require.NoError(t, err)
			for range 10 { // calls that go out as soon as the connection is back
				go func() {
					_ = read(t.Context(), s, "/node")
				}()
			}
			srv.Stop(srv.A)
			for range 10 {
				go func() {
					_ = read(t.Context(), s, "/node")
				}()
			}
			synctest.Wait()
			srv.Put("/node", []byte("new"))
			srv.Restart(srv.A)
			bubble.Pass(2 * time.Second)
			require.Len(t, events, 1, "lost event")
			require.Equal(t, zk.EventNodeDataChanged, (<-events).Type)
		})
	}
}

// The same with requests that zk.Conn itself had in its queue: they bypass the gate.
func TestChangeInTheGapIsReportedBesideForeignCalls(t *testing.T) {
	for range testkit.Shorter(100, 10) {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(6*time.Second))
			srv.Put("/node", []byte("old"))
			_, _, events, err := s.Conn().GetW("/node")
			require.NoError(t, err)
			restore := srv.Hang(srv.A)
			srv.Disconnect()
			for range 10 {
				go func() { _, _, _ = s.Conn().Get("/node") }()
			}
			synctest.Wait()
			srv.Put("/node", []byte("new"))
			restore()
			srv.Disconnect()
			bubble.Pass(4 * time.Second)
			require.Len(t, events, 1, "lost event")
		})
	}
}

// With so many watches that zk.Conn takes its time, and several requests, to set them
// again: none of the changes in the gap is lost.
func TestManyChangesInTheGapAreReported(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		long := strings.Repeat("x", 1000)
		var watches []<-chan zk.Event
		var paths []string
		for i := range 600 {
			path := "/" + long + string(rune('一'+i))
			srv.Put(path, []byte("old"))
			_, _, events, err := s.Conn().GetW(path)
			require.NoError(t, err)
			watches, paths = append(watches, events), append(paths, path)
		}
		srv.Stop(srv.A)
		synctest.Wait()
		for range 20 {
			go func() { _ = read(t.Context(), s, "/") }()
		}
		synctest.Wait()
		for _, path := range paths {
			srv.Put(path, []byte("new"))
		}
		srv.Restart(srv.A)
		bubble.Pass(2 * time.Second)
		require.Greater(t, len(srv.Log.Requests(zktest.OpSetWatches)), 1)
		for _, w := range watches {
			require.Len(t, w, 1, "lost event")
			require.Equal(t, zk.EventNodeDataChanged, (<-w).Type)
		}
	})
}
