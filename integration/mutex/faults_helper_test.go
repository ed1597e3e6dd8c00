package mutex_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// calm is a session timeout for tests in which the session has to survive outages
// on a busy machine.
const calm = 12 * time.Second

// proxiedFor is proxied with a session timeout of its own.
func proxiedFor(t *testing.T, timeout time.Duration, opts ...recipes.Option) (*recipes.Client, *faultproxy.Proxy) {
	t.Helper()
	return proxied(t, append([]recipes.Option{recipes.WithSessionTimeout(timeout)}, opts...)...)
}

// expire ends the client's session at the shared server.
func expire(t *testing.T, client *recipes.Client) {
	t.Helper()
	require.NoError(t, zkadmin.Expire(testkit.Context(t), ensemble.Shared(t).Server(0), client.Conn().SessionID()))
}

// reached waits for the client's state.
func reached(t *testing.T, client *recipes.Client, state recipes.ConnectionState) {
	t.Helper()
	testkit.Eventually(t, func() bool { return client.State() == state }, state.String())
}

// cutAndReconnect cuts the line once and waits until the client is back.
func cutAndReconnect(t *testing.T, client *recipes.Client, proxy *faultproxy.Proxy) {
	t.Helper()
	states, stop := client.Subscribe()
	defer stop()
	proxy.Cut()
	for {
		select {
		case state := <-states:
			if state == recipes.Reconnected {
				return
			}
		case <-testkit.Context(t).Done():
			require.Fail(t, "not reconnected")
		}
	}
}

// outage takes the line away until the returned function is called. It returns when
// the client knows.
func outage(t *testing.T, client *recipes.Client, proxy *faultproxy.Proxy) (over func()) {
	t.Helper()
	proxy.Refuse(true)
	proxy.Cut()
	reached(t, client, recipes.Suspended)
	return func() { proxy.Refuse(false) }
}

// queue returns the full paths of the contenders' znodes, in the order in which they
// were created.
func queue(t *testing.T, path string) []string {
	t.Helper()
	names := children(t, path)
	slices.SortFunc(names, func(a, b string) int { return compareTails(a, b) })
	for i, name := range names {
		names[i] = path + "/" + name
	}
	return names
}

// compareTails orders names by the ten digits at their end.
func compareTails(a, b string) int {
	tail := func(s string) string { return s[max(0, len(s)-10):] }
	return slices.Compare([]byte(tail(a)), []byte(tail(b)))
}

// created returns the czxid of a znode.
func created(t *testing.T, path string) int64 {
	t.Helper()
	ok, stat, err := observer(t).Exists(path)
	require.NoError(t, err)
	require.True(t, ok, "%s does not exist", path)
	return stat.Czxid
}

// deleteNode removes a znode as a third party would.
func deleteNode(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, observer(t).Delete(path, -1))
}

// deletionOf returns a channel that gets the time of the notification of the znode's deletion.
func deletionOf(t *testing.T, path string) <-chan time.Time {
	t.Helper()
	ok, _, events, err := observer(t).ExistsW(path)
	require.NoError(t, err)
	require.True(t, ok, "%s does not exist", path)
	gone := make(chan time.Time, 1)
	go func() { // ends with the watch, at the latest when the observer is closed
		if event := <-events; event.Type == zk.EventNodeDeleted {
			gone <- time.Now()
		}
	}()
	return gone
}

// endOf returns a channel that gets the time at which a lease's context ends.
func endOf(lease *recipes.Lease) <-chan time.Time {
	end := make(chan time.Time, 1)
	context.AfterFunc(lease.Context(), func() { end <- time.Now() })
	return end
}

// moment waits for a time.
func moment(t *testing.T, times <-chan time.Time, what string) time.Time {
	t.Helper()
	select {
	case at := <-times:
		return at
	case <-testkit.Context(t).Done():
		require.Fail(t, "has not happened: "+what)
		return time.Time{}
	}
}

// notGranted asserts that a waiter is still waiting.
func notGranted(t *testing.T, done <-chan result, who string) {
	t.Helper()
	select {
	case r := <-done:
		require.Failf(t, "a waiter has returned", "%s: %v", who, r.err)
	default:
	}
}

// granted waits for a waiter's lease.
func granted(t *testing.T, done <-chan result) *recipes.Lease {
	t.Helper()
	lease, err := outcome(t, done)
	require.NoError(t, err)
	return lease
}

// stands requires a valid lease.
func stands(t *testing.T, lease *recipes.Lease) {
	t.Helper()
	require.NoError(t, context.Cause(lease.Context()), "the lease has ended")
}

// expireUnheard ends the client's session while it is cut off, like a real expiry. The client learns of it at its
// next handshake. On a live connection the client could first learn of its znode's deletion, and mistake that for the
// only event.
func expireUnheard(t *testing.T, client *recipes.Client, proxy *faultproxy.Proxy) {
	t.Helper()
	session := client.Conn().SessionID()
	proxy.Refuse(true)
	proxy.Cut()
	require.NoError(t, zkadmin.Expire(testkit.Context(t), ensemble.Shared(t).Server(0), session))
	proxy.Refuse(false)
}
