package mutex_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

const (
	fifoSessions = 8
	fifoEach     = 8 // contenders of each session
)

// 64 contenders on 8 sessions get the lock in the order in which the server created their znodes, although all their
// connections are cut during the waits and the handovers. A disconnect costs no contender its place.
func TestOrderOfTheServerThroughCuts(t *testing.T) {
	path := testkit.Path(t)
	var proxies []*faultproxy.Proxy
	var clients []*recipes.Client
	for range fifoSessions {
		client, proxy := proxied(t, recipes.WithSessionTimeout(patience)) // no session is to end here
		clients, proxies = append(clients, client), append(proxies, proxy)
	}
	first := acquire(t, newMutex(t, direct(t), path))

	var mu sync.Mutex
	var granted []int64
	outcomes := make(chan error, fifoSessions*fifoEach)
	for _, client := range clients {
		m := newMutex(t, client, path)
		for range fifoEach {
			go func() { // joined through outcomes
				lease, err := m.Acquire(t.Context())
				if err != nil {
					outcomes <- err
					return
				}
				mu.Lock()
				granted = append(granted, lease.FencingToken())
				turn := len(granted)
				mu.Unlock()
				if turn%8 == 0 {
					proxies[turn/8%fifoSessions].Cut() // a waiter's, the holder's or the next one's
				}
				outcomes <- lease.Release()
			}()
		}
	}
	testkit.Eventually(t, func() bool { return len(children(t, path)) == 1+fifoSessions*fifoEach }, "all contenders' znodes")
	before := tokensOf(t, path)
	require.Equal(t, first.FencingToken(), before[0])

	for range 4 {
		cutAll(t, clients, proxies)
		require.Equal(t, before, tokensOf(t, path), "the same znodes after the cut")
	}
	for _, proxy := range proxies { // and once more just as the queue starts to move
		proxy.Cut()
	}
	require.NoError(t, first.Release())
	limit := time.After(patience)
	for range fifoSessions * fifoEach {
		select {
		case err := <-outcomes:
			require.NoError(t, err)
		case <-limit:
			mu.Lock()
			defer mu.Unlock()
			require.Failf(t, "the queue does not move", "%d granted", len(granted))
		}
	}
	require.Equal(t, before[1:], granted, "the order of the server, each with the znode it had first")
	require.Empty(t, children(t, path))
}

// cutAll cuts every connection and returns when all clients have a new one.
func cutAll(t *testing.T, clients []*recipes.Client, proxies []*faultproxy.Proxy) {
	t.Helper()
	for _, proxy := range proxies {
		proxy.ResetCounts()
		proxy.Cut()
	}
	for i, client := range clients {
		testkit.Eventually(t, func() bool {
			return proxies[i].Counts().Requests["connect"] > 0 && client.State() == recipes.Connected
		}, "the client's new connection")
	}
}

// tokensOf returns the czxids of a path's children, in the order of their making.
func tokensOf(t *testing.T, path string) []int64 {
	t.Helper()
	var tokens []int64
	for _, name := range children(t, path) {
		exists, stat, err := observer(t).Exists(path + "/" + name)
		require.NoError(t, err)
		require.True(t, exists, "the znode %s has gone", name)
		tokens = append(tokens, stat.Czxid)
	}
	slices.Sort(tokens)
	return tokens
}

// A later contender waits longer, on one session and across sessions.
func TestArrivalOrder(t *testing.T) {
	path := testkit.Path(t)
	one, two := newMutex(t, direct(t), path), newMutex(t, direct(t), path)
	holder := acquire(t, one)
	var waiters []<-chan result
	for i := range 10 {
		m := one
		if i%3 == 0 {
			m = two
		}
		waiters = append(waiters, waiting(t, testkit.Context(t), m, path, i+2))
	}
	for i, waiter := range waiters {
		require.NoError(t, holder.Release())
		lease, err := outcome(t, waiter)
		require.NoError(t, err)
		for _, later := range waiters[i+1:] {
			require.Empty(t, later, "one has overtaken")
		}
		holder = lease
	}
	require.NoError(t, holder.Release())
}
