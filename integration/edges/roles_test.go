package edges_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// asObserver makes the last of three servers an observer.
func asObserver() map[string]string {
	return map[string]string{"server.3": "zk3:2888:3888:observer"}
}

// An observer serves locks like any other server: its clients' writes are committed by the quorum, and it reports their sessions to
// the leader. A lease outlives the loss of the observer on another server.
func TestObserver(t *testing.T) {
	t.Parallel()
	e := ensemble.New(t, ensemble.Config{Nodes: 3, Properties: asObserver()})
	mode, err := e.Mode(testkit.Context(t), 2)
	require.NoError(t, err)
	require.Equal(t, "observer", mode)
	alone := connect(t, e.Server(2), recipes.WithSessionTimeout(4*time.Second))
	lease := acquire(t, newMutex(t, alone, "/lock"))
	other := newMutex(t, connect(t, e.Server(0)), "/lock")
	_, err = other.TryAcquire(testkit.Context(t))
	require.ErrorIs(t, err, recipes.ErrNotAcquired)
	before := lease.TrustedUntil()
	testkit.Eventually(t, func() bool { return lease.TrustedUntil().After(before.Add(4 * time.Second)) }, "the lease is proven again and again")
	require.NoError(t, lease.Release())

	require.NoError(t, e.Stop(testkit.Context(t), 2))
	next := acquire(t, other)
	require.Greater(t, next.FencingToken(), lease.FencingToken())
	require.NoError(t, next.Release())
}

// Servers that create local sessions serve locks if they upgrade such a session at its first ephemeral znode. Otherwise Acquire
// fails at once, and names the setting to change.
func TestLocalSessions(t *testing.T) {
	t.Parallel()
	for name, upgrades := range map[string]bool{"upgraded": true, "not upgraded": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			properties := map[string]string{"localSessionsEnabled": "true"}
			if upgrades {
				properties["localSessionsUpgradingEnabled"] = "true"
			}
			e := ensemble.New(t, ensemble.Config{Nodes: 3, Properties: properties})
			for node := range 3 {
				m := newMutex(t, connect(t, e.Server(node), recipes.WithSessionTimeout(4*time.Second)), "/lock")
				if !upgrades {
					began := time.Now()
					_, err := m.Acquire(testkit.Context(t))
					require.ErrorContains(t, err, "localSessionsUpgradingEnabled")
					require.Less(t, time.Since(began), atOnce)
					continue
				}
				lease := acquire(t, m)
				before := lease.TrustedUntil()
				testkit.Eventually(t, func() bool { return lease.TrustedUntil().After(before.Add(4 * time.Second)) }, "the lease is proven again and again")
				require.NoError(t, lease.Release())
			}
			require.NoError(t, zkadmin.Handshake(testkit.Context(t), e.Server(0)))
		})
	}
}
