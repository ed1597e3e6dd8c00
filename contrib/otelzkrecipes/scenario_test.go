package otelzkrecipes_test

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// What must never be an attribute, but for the session id and the token, which the servers choose.
const (
	namespace = "tenant-17"
	lockPath  = "/orders/4711"
	holderID  = "web-3"
)

// night is a client and a lock with their telemetry.
type night struct {
	*probe
	server *zktest.Server
	client *recipes.Client
	lock   *mutex.InterProcessMutex
	tokens []int64
	owners []int64 // the ids of the sessions
}

func newNight(p *probe) *night {
	p.Helper()
	server := zktest.NewServer(p)
	client := zkclient.Connect(p, server, recipes.WithTrace(p.Trace()), recipes.WithNamespace(namespace), recipes.WithID(holderID))
	lock, err := mutex.New(client, lockPath, mutex.WithName("goods"))
	require.NoError(p, err)
	stop, err := p.Observe(client)
	require.NoError(p, err)
	p.Cleanup(func() { require.NoError(p, stop()) })
	return &night{probe: p, server: server, client: client, lock: lock}
}

func (n *night) acquire() *recipes.Lease {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), patience)
	defer cancel()
	lease, err := n.lock.Acquire(ctx)
	require.NoError(n, err)
	n.tokens, n.owners = append(n.tokens, lease.FencingToken()), append(n.owners, n.client.Conn().SessionID())
	return lease
}

// play produces every event with a metric: an acquired lock, a re-entry, a busy lock, a timeout, a release, a leader,
// a znode deleted by another client, a cut connection, an expired session, and leases that are still held.
func (n *night) play() {
	n.Helper()
	lease := n.acquire()
	inner, err := n.lock.Acquire(lease.Context())
	require.NoError(n, err)
	_, err = n.lock.TryAcquire(n.Context())
	require.ErrorIs(n, err, recipes.ErrNotAcquired)
	hurried, cancel := context.WithTimeout(n.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = n.lock.Acquire(hurried)
	require.ErrorIs(n, err, context.DeadlineExceeded)
	require.NoError(n, inner.Release())
	require.NoError(n, lease.Release())

	deleted := n.acquire()
	n.server.Delete(deleted.Path())
	<-deleted.Context().Done()

	election, err := latch.New(n.client, "/leaders/billing", latch.WithName("billing"))
	require.NoError(n, err)
	require.NoError(n, election.Start())
	n.Cleanup(func() { require.NoError(n, election.Close()) })
	term, err := election.Await(n.Context())
	require.NoError(n, err)

	states, stop := n.client.Subscribe()
	defer stop()
	require.Equal(n, recipes.Connected, <-states)
	n.server.Disconnect()
	n.awaitState(states, recipes.Reconnected)
	expired := n.acquire()
	n.server.Expire(n.client.Conn().SessionID())
	<-expired.Context().Done()
	<-term.Context().Done()
	n.awaitState(states, recipes.Reconnected)
	_, err = election.Await(n.Context())
	require.NoError(n, err)
	n.acquire()
}

func (n *night) awaitState(states <-chan recipes.ConnectionState, want recipes.ConnectionState) {
	n.Helper()
	for {
		select {
		case state := <-states:
			if state == want {
				return
			}
		case <-time.After(patience):
			require.FailNow(n, "no state", want)
		}
	}
}
