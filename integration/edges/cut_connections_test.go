package edges_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
)

// A proxy that cuts each connection at a list, for some seconds, does not look like a server that lacks an operation.
// The election continues, and a lock of the client works soon after.
func TestElectionBehindAProxyThatCutsConnections(t *testing.T) {
	t.Parallel()
	e := ensemble.New(t, ensemble.Config{})
	proxy := faultproxy.New(t, e.Server(0))
	client := connect(t, proxy.Addr())
	var until atomic.Pointer[time.Time]
	proxy.OnRequest(func(r faultproxy.Request) {
		if limit := until.Load(); r.Op == "getChildren2" && limit != nil && time.Now().Before(*limit) {
			proxy.Cut()
		}
	})
	end := time.Now().Add(3500 * time.Millisecond)
	until.Store(&end)
	l, err := latch.New(client, testkit.Path(t))
	require.NoError(t, err)
	require.NoError(t, l.Start())
	ctx, cancel := context.WithDeadline(testkit.Context(t), end.Add(10*time.Second))
	defer cancel()
	term, err := l.Await(ctx)
	require.NoError(t, err)
	require.NoError(t, context.Cause(term.Context()))
	require.NoError(t, acquire(t, newMutex(t, client, "/lock")).Release())
	require.NoError(t, l.Close())
}
