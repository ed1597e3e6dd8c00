package edges_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

const (
	// sessionTimeout has to survive outages on a busy machine.
	sessionTimeout = 12 * time.Second
	// patience is how long tests wait for something that has to happen.
	patience = time.Minute
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "10") // the tests mostly wait; the command line wins
	goleak.VerifyTestMain(ensemble.Main(m))
}

// connect returns a client of the server, closed at the end of the test.
func connect(t *testing.T, server string, opts ...recipes.Option) *recipes.Client {
	t.Helper()
	return testclient.Dial(t, []string{server}, append([]recipes.Option{recipes.WithSessionTimeout(sessionTimeout)}, opts...)...)
}

// shared is the address of the server that the tests share.
func shared(t *testing.T) string {
	t.Helper()
	return ensemble.Shared(t).Server(0)
}

// stranger is a plain connection with only the world's rights, for attacks and for inspection of the server.
func stranger(t *testing.T, server string) *zk.Conn {
	t.Helper()
	return testkit.Conn(t, []string{server}, sessionTimeout)
}

func newMutex(t *testing.T, client *recipes.Client, path string, opts ...mutex.Option) *mutex.InterProcessMutex {
	t.Helper()
	m, err := mutex.New(client, path, opts...)
	require.NoError(t, err)
	return m
}

func acquire(t *testing.T, m *mutex.InterProcessMutex) *recipes.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience) // not testkit.Context, which leaves a cleanup behind
	defer cancel()
	lease, err := m.Acquire(ctx)
	require.NoError(t, err)
	return lease
}

// result is the result of an Acquire.
type result struct {
	lease *recipes.Lease
	err   error
}

// acquiring starts an Acquire.
func acquiring(ctx context.Context, m *mutex.InterProcessMutex) <-chan result {
	done := make(chan result, 1)
	go func() { // ends with the Acquire, which ctx bounds
		lease, err := m.Acquire(ctx)
		done <- result{lease, err}
	}()
	return done
}

// ended waits for a lease's context to end and returns why.
func ended(t *testing.T, lease *recipes.Lease) error {
	t.Helper()
	select {
	case <-lease.Context().Done():
	case <-time.After(patience):
		require.Fail(t, "the lease's context has not ended")
	}
	return context.Cause(lease.Context())
}
