package zkutil

import (
	"context"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// A paused server accepts and does not answer: zk.Conn would wait for 26 s at T = 4 s.
func TestHangingHandshakeFailsAfterASixth(t *testing.T) {
	for _, timeout := range []time.Duration{1200 * time.Millisecond, 6 * time.Second, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, serverA, serverB)
			s := connect(t, f.config(timeout))
			good, bad := serverA, serverB
			f.mu.Lock()
			if f.dials[0] == serverB {
				good, bad = bad, good
			}
			f.mu.Unlock()
			f.set(hanging, bad) // the next in the round
			pass(time.Second)
			start := time.Now()
			f.drop()
			eventually(t, timeout, func() bool { return s.State() == Connected })
			require.InDelta(t, timeout/6, time.Since(start), float64(10*time.Millisecond))
			f.mu.Lock()
			defer f.mu.Unlock()
			require.Equal(t, []string{bad, good}, f.dials[len(f.dials)-2:])
		})
	}
}

func TestConnectTellsWhyItFailed(t *testing.T) {
	for state, want := range map[condition]string{
		refusing: "connection refused", hanging: "handshake with", silent: "dial timeout",
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, serverA)
			f.set(state, serverA)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := Connect(ctx, f.config(6*time.Second))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, want)
		})
	}
}

// zk.Conn leaves one open per expiry.
func TestOneSocketIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s := connect(t, f.config(6*time.Second))
		for range 50 {
			old := sessionID(s)
			f.expire(old)
			eventually(t, 5*time.Second, func() bool { return sessionID(s) != old && s.State() == Connected })
			f.mu.Lock()
			require.Equal(t, 1, f.open)
			f.mu.Unlock()
		}
		require.NoError(t, s.Close())
		f.mu.Lock()
		defer f.mu.Unlock()
		require.Zero(t, f.open)
	})
}

// The negotiated timeout counts, not the one asked for, and it may change with the
// session.
func TestTimeoutIsTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		f.granted = 12 * time.Second
		s := connect(t, f.config(6*time.Second))
		require.Equal(t, 12*time.Second, s.Timeout())
		e := acquire(t, mutexOn(s, "/m"))
		require.Equal(t, 8*time.Second, time.Until(e.TrustedUntil()))
		f.granted = 24 * time.Second
		f.expire(sessionID(s))
		pass(2 * time.Second)
		require.Equal(t, 24*time.Second, s.Timeout())
	})
}

// opOf is the operation code of a frame that zk.Conn writes.
func opOf(frame []byte) int32 { return int32(binary.BigEndian.Uint32(frame[8:])) }

// A failing resend of credentials makes a bare zk.Conn wait for itself for good
// (go-zookeeper PR 163).
func TestFailedResendOfCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		cfg := f.config(6 * time.Second)
		cfg.Auth = []Auth{{Scheme: "digest", Credential: []byte("user:password")}}
		s := connect(t, cfg)
		require.Len(t, f.requests(opSetAuth), 1)
		failures := 2
		f.mu.Lock()
		f.onWrite = func(frame []byte) error {
			if len(frame) > 12 && opOf(frame) == opSetAuth && failures > 0 {
				failures--
				return errBroken
			}
			return nil
		}
		f.mu.Unlock()
		f.drop()
		eventually(t, 10*time.Second, func() bool { return len(f.requests(opSetAuth)) == 2 })
		require.Zero(t, failures)
		e := acquire(t, mutexOn(s, "/m"))
		require.NoError(t, e.Leave())
	})
}

// The credentials are sent before Connect returns, and again on every connection.
func TestCredentialsOnEveryConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		cfg := f.config(6 * time.Second)
		cfg.Auth = []Auth{{"digest", []byte("a:a")}, {"digest", []byte("b:b")}}
		connect(t, cfg)
		require.Len(t, f.requests(opSetAuth), 2)
		for n := 2; n <= 5; n++ {
			f.drop()
			pass(100 * time.Millisecond)
			require.Len(t, f.requests(opSetAuth), 2*n)
		}
	})
}

// With a watch to set again too: its request waits for the answers to the credentials,
// and other answers for it.
func TestCredentialsAndWatchesOnAReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		cfg := f.config(30 * time.Second)
		cfg.Auth = []Auth{{"digest", []byte("a:a")}, {"digest", []byte("b:b")}}
		s := connect(t, cfg)
		e := acquire(t, mutexOn(s, "/m"))
		for range 5 {
			start := time.Now()
			f.drop()
			synctest.Wait()
			require.NoError(t, read(t.Context(), s))
			require.Less(t, time.Since(start), 100*time.Millisecond)
			pass(time.Second)
		}
		require.Len(t, f.requests(opSetWatches), 5)
		require.NoError(t, e.Leave())
	})
}

// A node changes while the connection is away, and answers with a newer zxid are on
// their way right at the reconnect: had zk.Conn seen one before it built setWatches,
// the server would find nothing to report, and the change would never be told.
func TestChangeInTheGapIsReported(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, serverA)
			s := connect(t, f.config(6*time.Second))
			f.put("/node", "old")
			w, err := s.watch(t.Context(), "/node")
			require.NoError(t, err)
			for range 10 { // calls that go out as soon as the connection is back
				go func() {
					_, _ = do(t.Context(), s, request[node]{run: get("/node")})
				}()
			}
			f.set(refusing, serverA)
			f.drop()
			for range 10 {
				go func() {
					_, _ = do(t.Context(), s, request[node]{run: get("/node")})
				}()
			}
			synctest.Wait()
			f.put("/node", "new")
			f.set(healthy, serverA)
			pass(2 * time.Second)
			require.True(t, w.hasFired(), "lost event")
			require.Equal(t, zk.EventNodeDataChanged, w.event)
		})
	}
}

// The same with requests that zk.Conn itself had in its queue: they bypass the gate.
func TestChangeInTheGapIsReportedBesideForeignCalls(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, serverA)
			s := connect(t, f.config(6*time.Second))
			f.put("/node", "old")
			w, err := s.watch(t.Context(), "/node")
			require.NoError(t, err)
			f.set(hanging, serverA)
			f.drop()
			for range 10 {
				go func() { _, _, _ = s.Conn().Get("/node") }()
			}
			synctest.Wait()
			f.put("/node", "new")
			f.set(healthy, serverA)
			f.drop()
			pass(4 * time.Second)
			require.True(t, w.hasFired(), "lost event")
		})
	}
}
