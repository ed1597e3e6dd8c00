package reliability_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
)

// TestCutLines requires that a lease survives twenty cuts a minute, of the holder's connection and the waiter's, and that
// a waiter keeps its place.
func TestCutLines(t *testing.T) {
	t.Parallel()
	e := ensemble.New(t, quick)
	random := newRandom(t)
	ctx := bounded(t, *cutting)
	var lines []*faultproxy.Proxy
	proxied := func() (addresses []string) {
		for _, server := range e.Servers() {
			line := faultproxy.New(t, server)
			lines, addresses = append(lines, line), append(addresses, line.Addr())
		}
		return addresses
	}
	var pairs []*pair
	for range *cutOff {
		pairs = append(pairs, newPair(t, dial(t, calm, proxied()), dial(t, calm, proxied())))
	}
	enter(ctx, t, pairs, random)
	const every = 3 * time.Second
	cuts := int(*cutting / every)
	var all sync.WaitGroup // each ends with ctx; joined below
	for clients := range slices.Chunk(lines, 3) {
		first := upTo(random, every)
		all.Go(func() { cutAgainAndAgain(ctx, clients, first, every, cuts) })
	}
	all.Wait()
	var left []time.Duration
	for _, p := range pairs {
		p.proven(t)
		p.unmoved(ctx, t)
		left = append(left, time.Duration(p.least.Load()))
	}
	conns := 0
	for _, line := range lines {
		conns += line.Counts().Conns
	}
	require.GreaterOrEqual(t, conns, len(pairs)*2*cuts, "the lines were in use when they were cut")
	for _, p := range pairs {
		p.handOver(ctx, t)
	}
	t.Logf("%d cuts of each line, %v apart; %d connections; %d of %d leases kept, trust left %v at least",
		cuts, every, conns, len(left), len(pairs), rounded(slices.Min(left)))
}

// cutAgainAndAgain cuts all connections of a client n times.
func cutAgainAndAgain(ctx context.Context, lines []*faultproxy.Proxy, first, every time.Duration, n int) {
	pass(ctx, first)
	for range n {
		for _, line := range lines {
			line.Cut()
		}
		pass(ctx, every)
	}
}
