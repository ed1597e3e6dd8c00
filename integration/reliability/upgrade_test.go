package reliability_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/image"
)

const (
	// upgradedLeases is the number of leases in one rolling upgrade.
	upgradedLeases = 20
	// upgradeTimeout is their session timeout, the default of recipes. Freshly started servers elect a leader more slowly.
	upgradeTimeout = 30 * time.Second
)

// TestRollingUpgradeEndsNoLease stops each server in turn, and restarts it as a newer ZooKeeper with the same data. Every lease
// survives, and every waiter keeps its place.
func TestRollingUpgradeEndsNoLease(t *testing.T) {
	t.Parallel()
	_, err := image.BuildSuite(t.Context(), image.Newest, t.Output()) // which takes minutes the first time
	require.NoError(t, err)
	cfg := quick
	cfg.Suite = image.Oldest
	e := ensemble.New(t, cfg)
	s := &scene{e: e, timeout: upgradeTimeout, random: newRandom(t)}
	ctx := bounded(t, 10*s.timeout)
	require.NoError(t, e.WaitServing(ctx))
	before := versions(t, e)
	for i := range upgradedLeases {
		s.pairs = append(s.pairs, newPair(t, connectAt(t, e, i%3, s.timeout), connectAt(t, e, (i+1)%3, s.timeout)))
	}
	enter(ctx, t, s.pairs, s.random)
	for node := range 3 {
		require.NoError(t, e.Upgrade(ctx, node, image.Newest))
		require.NoError(t, e.WaitServing(ctx))
		s.unharmed(ctx, t)
	}
	after := versions(t, e)
	require.NotEqual(t, before, after)
	for _, p := range s.pairs {
		p.handOver(ctx, t)
	}
	t.Logf("%s to %s: %d of %d leases kept", before, after, len(s.pairs), upgradedLeases)
}

// versions returns the release of ZooKeeper that all nodes run.
func versions(t *testing.T, e *ensemble.Ensemble) string {
	t.Helper()
	releases := map[string]bool{}
	var release string
	for node := range 3 {
		var err error
		release, err = e.Exec(t.Context(), node, "dpkg-query", "-W", "-f", "${Version}", "libzookeeper-java")
		require.NoError(t, err)
		releases[release] = true
	}
	require.Len(t, releases, 1, "the nodes run different releases")
	return release
}
