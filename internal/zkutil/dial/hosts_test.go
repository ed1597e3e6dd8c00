package dial

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

func newHosts(t *testing.T, servers ...string) *hosts {
	t.Helper()
	h := &hosts{
		ctx: t.Context(), initCtx: t.Context(), patience: func() time.Duration { return time.Second },
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

// The server that has just failed is not tried next.
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

	literal := newHosts(t, "127.0.0.1:2181", "[::1]:2181", "[fe80::1%eth0]:2181")
	literal.names.isVerbatim = false
	for range 3 {
		server, _ := literal.Next()
		require.Contains(t, []string{"127.0.0.1:2181", "[::1]:2181", "[fe80::1%eth0]:2181"}, server)
		require.Equal(t, server, literal.find(server).address)
	}
}

// pauselessHosts is a user's host provider that never asks for a pause.
type pauselessHosts struct{ next, connected int }

func (*pauselessHosts) Init(servers []string) error {
	if len(servers) != 2 {
		return errors.New("two, please")
	}
	return nil
}
func (*pauselessHosts) Len() int { return 2 }
func (r *pauselessHosts) Next() (string, bool) {
	r.next++
	return []string{"a:1", "b:1"}[r.next%2], false
}
func (r *pauselessHosts) Connected() { r.connected++ }

// Without pauses zk.Conn would spin.
func TestHostsPauseForAProviderThatDoesNot(t *testing.T) {
	inner := &pauselessHosts{}
	h := &hosts{initCtx: t.Context(), inner: (&userCode{ctx: t.Context(), running: map[string]int{}}).wrapHosts(inner)}
	require.Error(t, h.Init([]string{"a:1"}))
	require.NoError(t, h.Init([]string{"a:1", "b:1"}))
	require.Equal(t, 2, h.Len())
	pauses := 0
	for range 100 {
		if _, pause := h.Next(); pause {
			pauses++
		}
	}
	require.InDelta(t, 50, pauses, 1)
	require.Equal(t, 100, inner.next)
	h.Connected()
	require.Equal(t, 1, inner.connected)
}
