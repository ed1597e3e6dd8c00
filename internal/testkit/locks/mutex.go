package locks

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// ErrWork is the error of a test's work.
var ErrWork = errors.New("no database")

// Result is the result of an Acquire in the background, and its time.
type Result = bubble.Outcome[*recipes.Lease]

// Attempt is Acquire or TryAcquire.
type Attempt func(context.Context) (*recipes.Lease, error)

// Nothing is a function for Do that does nothing.
func Nothing(context.Context, *recipes.Lease) error { return nil }

// Connect returns a client of some of the servers.
func Connect(t *testing.T, srv *zktest.Server, addresses []string, timeout time.Duration) *recipes.Client {
	t.Helper()
	return zkclient.ConnectTo(t, srv, addresses, recipes.WithSessionTimeout(timeout))
}

// Adopt returns a client of a connection that the client does not own, with a known session timeout.
func Adopt(t *testing.T, srv *zktest.Server, server string, timeout time.Duration) *recipes.Client {
	t.Helper()
	conn, events, err := zk.Connect([]string{server}, timeout, zk.WithDialer(srv.Dialer()), zk.WithLogger(testkit.Quiet{}))
	require.NoError(t, err)
	client, err := recipes.NewClient(conn, events, recipes.WithSessionTimeout(timeout))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.Close())
		conn.Close()
	})
	return client
}

// MutexOn returns a mutex on any path.
func MutexOn(t *testing.T, client *recipes.Client, path string) *mutex.InterProcessMutex {
	t.Helper()
	m, err := mutex.New(client, path)
	require.NoError(t, err)
	return m
}

// Acquire acquires a mutex, and fails the test if the acquisition fails.
func Acquire(t *testing.T, m *mutex.InterProcessMutex) *recipes.Lease {
	t.Helper()
	lease, err := m.Acquire(t.Context())
	require.NoError(t, err)
	return lease
}

// Acquiring starts an Acquire in the background.
func Acquiring(ctx context.Context, m *mutex.InterProcessMutex) <-chan Result {
	return bubble.Start(ctx, m.Acquire)
}

// Ended waits for the end of a lease's context, and returns its time and cause.
func Ended(t *testing.T, lease *recipes.Lease) (time.Time, error) {
	t.Helper()
	select {
	case <-lease.Context().Done():
		return time.Now(), context.Cause(lease.Context())
	case <-time.After(time.Hour):
		require.FailNow(t, "the lease stands after an hour")
		return time.Time{}, nil
	}
}

// EndOf returns a channel that gets the time at which a lease's context ends.
func EndOf(lease *recipes.Lease) <-chan time.Time {
	end := make(chan time.Time, 1)
	context.AfterFunc(lease.Context(), func() { end <- time.Now() })
	return end
}

// Revocations returns a revocation listener, and a channel that gets the leases of its calls.
func Revocations() (mutex.Option, <-chan *recipes.Lease) {
	calls := make(chan *recipes.Lease, 16)
	return mutex.WithRevocationListener(func(lease *recipes.Lease) { calls <- lease }), calls
}

// IsRevoked reports whether a lease's revocation is known by now.
func IsRevoked(lease *recipes.Lease) bool {
	synctest.Wait()
	select {
	case <-lease.Revoked():
		return true
	default:
		return false
	}
}

// TakeLog returns the new lines of a log as soon as nothing happens any more.
func TakeLog(log *testkit.Log) []string {
	bubble.Pass(bubble.Moment)
	return log.Take()
}

// Stamp formats a time as the log does.
func Stamp(t time.Time) string { return t.Format("2006-01-02T15:04:05.000Z07:00") }
