package dial

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

func newHosts(t *testing.T, servers ...string) *hosts {
	t.Helper()
	h := &hosts{
		ctx: t.Context(), patience: func() time.Duration { return time.Second },
		names: &names{ctx: t.Context(), isVerbatim: true},
	}
	require.NoError(t, h.Init(servers))
	return h
}

func TestHostsTakeTurns(t *testing.T) {
	h := newHosts(t, "a:1", "b:1", "c:1")
	require.Equal(t, 3, h.Len())
	for range 20 {
		var round []string
		for range 3 {
			server, _ := h.Next()
			round = append(round, server)
		}
		require.ElementsMatch(t, []string{"a:1", "b:1", "c:1"}, round, "each server once a round")
	}
}

// The server that just failed is not tried next.
func TestHostsNeverRepeatAServerAtOnce(t *testing.T) {
	h := newHosts(t, "a:1", "b:1")
	last := ""
	for range 200 {
		server, _ := h.Next()
		require.NotEqual(t, last, server)
		last = server
	}
}

func TestHostsPauseAfterARound(t *testing.T) {
	for _, servers := range [][]string{{"a:1"}, {"a:1", "b:1"}, {"a:1", "b:1", "c:1"}} {
		h := newHosts(t, servers...)
		var pauses []bool
		for range 3 * len(servers) {
			_, pause := h.Next()
			pauses = append(pauses, pause)
		}
		for i, pause := range pauses {
			require.Equal(t, i > 0 && i%len(servers) == 0, pause, "attempt %d of %v", i, servers)
		}
	}
}

func TestHostsRetryAtOnceAfterASuccess(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := newHosts(t, "a:1")
		_, pause := h.Next()
		require.False(t, pause)
		h.Connected()
		pass(time.Minute)
		_, pause = h.Next()
		require.False(t, pause, "the first attempt after a loss is made at once")
		_, pause = h.Next()
		require.True(t, pause, "the second attempt pauses")
	})
}

func TestHostsRefuseInvalidAddresses(t *testing.T) {
	for _, server := range []string{"", ":2181", "a", "a:b:c"} {
		require.Error(t, (&hosts{names: &names{}}).Init([]string{server}), server)
	}
}

// A user's dialer resolves the names itself, and addresses need not be resolved.
func TestHostsPassOnWhatNeedsNoLookup(t *testing.T) {
	h := newHosts(t, "zk.example:2281")
	server, _ := h.Next()
	require.Equal(t, "zk.example:2281", server)
	require.Equal(t, host{server: server, address: server}, h.find(server))
	require.Equal(t, "zk.example", h.find(server).name())
	other := "zk.elsewhere:2281"
	require.Equal(t, host{server: other, address: other}, h.find(other), "a dial without Next")

	literal := newHosts(t, "127.0.0.1:2181", "[::1]:2181", "[fe80::1%eth0]:2181")
	literal.names.isVerbatim = false
	for range 3 {
		server, _ := literal.Next()
		require.Contains(t, []string{"127.0.0.1:2181", "[::1]:2181", "[fe80::1%eth0]:2181"}, server)
		require.Equal(t, server, literal.find(server).address)
	}
}

// Connections that end right after the handshake are replaced more and more rarely, at most within the patience with a server, and more
// often while the session is in use. One that lasts ends the series, and so does the first of a series not wait.
func TestHostsPauseWhileConnectionsEndAtOnce(t *testing.T) {
	for _, isInUse := range []bool{false, true} {
		testkit.Bubble(t, func(t *testing.T) {
			const patience = 4 * time.Second
			h := newHosts(t, "a:1", "b:1")
			h.patience, h.isInUse = func() time.Duration { return patience }, func() bool { return isInUse }
			limit := map[bool]time.Duration{false: patience, true: patience / HurryDivisor}[isInUse]
			failures := 0 // of attempts ahead of each connection, which wait for nothing here, and do not end the series
			connect := func(lives time.Duration) (pause time.Duration) {
				beganAt := time.Now()
				h.Next()
				pause = time.Since(beganAt)
				for range failures {
					h.Next()
				}
				require.Equal(t, pause, time.Since(beganAt))
				h.Connected()
				pass(lives)
				return pause
			}
			for failures = range 3 {
				connect(time.Minute)
				want := shortestFlapping
				for n := range 40 {
					pause := connect(time.Duration(n) * time.Millisecond)
					if n < 2 { // the connection before lasted, or was the first to end at once
						require.Zero(t, pause)
						continue
					}
					require.LessOrEqual(t, pause, want)
					require.GreaterOrEqual(t, pause, want/2)
					want = min(2*want, limit)
				}
				require.Equal(t, want, limit)
			}
			failures = 0
			connect(time.Minute)
			for range 10 {
				require.Zero(t, connect(0), "after a connection that lasted, or served a write")
				h.noteCommit()
			}
			h.noteAnswer()
			h.Next()
			beganAt := time.Now()
			h.Next()
			require.Zero(t, time.Since(beganAt), "after a failed attempt the rounds have their own pause")
		})
	}
}
