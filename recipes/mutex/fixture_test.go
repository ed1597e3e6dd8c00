package mutex_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// fixture is a test in a bubble: an ensemble of two servers, and contenders for one lock. The first server is that of the
// clients that a test gives troubles to.
type fixture struct {
	*testing.T
	srv *zktest.Server
}

// moment is long enough for everything that takes no time by itself.
const moment = 10 * time.Millisecond

// inBubble runs a test with a fixture.
func inBubble(t *testing.T, test func(f *fixture), opts ...zktest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(&fixture{t, zktest.NewServer(t, append([]zktest.Option{zktest.WithServers(2)}, opts...)...)})
	})
}

// client returns a client that knows the second server alone, and has no troubles.
func (f *fixture) client(opts ...recipes.Option) *recipes.Client {
	f.Helper()
	return f.connect(f.srv.Addrs()[1], opts...)
}

// troubled returns a client that knows the first server alone.
func (f *fixture) troubled(opts ...recipes.Option) *recipes.Client {
	f.Helper()
	return f.connect(f.srv.Addr(), opts...)
}

func (f *fixture) connect(server string, opts ...recipes.Option) *recipes.Client {
	f.Helper()
	opts = append([]recipes.Option{recipes.WithSessionTimeout(testclient.SessionTimeout)}, opts...)
	client := zkclient.ConnectTo(f, f.srv, []string{server}, opts...)
	pass(moment)
	return client
}

// mutex returns a mutex on the lock's path.
func (f *fixture) mutex(client *recipes.Client, opts ...mutex.Option) *mutex.InterProcessMutex {
	f.Helper()
	m, err := mutex.New(client, lock, opts...)
	require.NoError(f, err)
	return m
}

// queue are the paths of the znodes below the lock, in the order in which they were made.
func (f *fixture) queue() []string {
	names := f.srv.Children(lock)
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(a[max(0, len(a)-10):], b[max(0, len(b)-10):]) })
	for i, name := range names {
		names[i] = lock + "/" + name
	}
	return names
}

// waiting starts an Acquire in the background. It returns when the contender waits as the last in the queue.
func (f *fixture) waiting(ctx context.Context, m *mutex.InterProcessMutex) <-chan result {
	f.Helper()
	before := len(f.queue())
	done := acquiring(ctx, m)
	pass(moment)
	require.Len(f, f.queue(), before+1, "the waiter's znode")
	require.Empty(f, done)
	return done
}

// granted waits for a waiter's lease.
func (f *fixture) granted(done <-chan result) *recipes.Lease {
	f.Helper()
	got := f.outcome(done)
	require.NoError(f, got.err)
	return got.lease
}

func (f *fixture) outcome(done <-chan result) result {
	f.Helper()
	select {
	case got := <-done:
		return got
	case <-time.After(time.Hour):
		require.FailNow(f, "Acquire has not returned")
		return result{}
	}
}

// outage stops the first server until over is called. It returns when its clients know.
func (f *fixture) outage() (over func()) {
	f.srv.Stop(f.srv.Addr())
	pass(moment)
	return func() { require.NoError(f, f.srv.Restart(f.srv.Addr())) }
}

// cutAndReconnect cuts a client's connection, and waits until it is back.
func (f *fixture) cutAndReconnect(client *recipes.Client) {
	f.Helper()
	states, stop := client.Subscribe()
	defer stop()
	f.srv.Disconnect(client.Conn().SessionID())
	for state := range states {
		if state == recipes.Reconnected {
			return
		}
	}
}

// expireUnheard ends a client's session while the client is cut off, as expiries are. The client learns of it at its next
// handshake.
func (f *fixture) expireUnheard(client *recipes.Client) {
	f.Helper()
	session := client.Conn().SessionID()
	over := f.outage()
	f.srv.Expire(session)
	over()
}

// stands requires a lease not to have ended.
func (f *fixture) stands(lease *recipes.Lease) {
	f.Helper()
	synctest.Wait()
	require.NoError(f, context.Cause(lease.Context()), "the lease has ended")
}

// cause waits for the end of a lease, and returns why it ended.
func (f *fixture) cause(lease *recipes.Lease) error {
	f.Helper()
	_, cause := ended(f.T, lease)
	return cause
}

// errOfTest is an error of a test's own.
var errOfTest = errors.New("of the test")

// lockedBuffer is a buffer for a log.
type lockedBuffer struct {
	mu sync.Mutex // protects b
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
