package locks

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Path is the path that the tests contend for.
const Path = "/locks/a"

// Fixture is a test in a bubble, with contenders for one mutex. Clients that are to meet faults use the first server.
type Fixture struct {
	*bubble.Bubble
}

// Run runs a test in a bubble, with a fixture.
func Run(t *testing.T, test func(f *Fixture), opts ...zktest.Option) {
	t.Helper()
	bubble.Run(t, func(b *bubble.Bubble) { test(&Fixture{b}) }, opts...)
}

// Mutex returns a mutex on the path.
func (f *Fixture) Mutex(client *recipes.Client, opts ...mutex.Option) *mutex.InterProcessMutex {
	f.Helper()
	m, err := mutex.New(client, Path, opts...)
	require.NoError(f, err)
	return m
}

// Contenders returns the paths of the znodes below the path, sorted by the numbers at the end of their names.
func (f *Fixture) Contenders() []string { return f.Queue(Path) }

// Waiting starts an Acquire in the background, and requires the contender to wait as the last in the queue.
func (f *Fixture) Waiting(ctx context.Context, m *mutex.InterProcessMutex) <-chan Result {
	f.Helper()
	before := len(f.Contenders())
	done := bubble.Waiting(f.Bubble, ctx, m.Acquire)
	require.Len(f, f.Contenders(), before+1, "the waiter's znode")
	return done
}

// Granted waits for a waiter's lease.
func (f *Fixture) Granted(done <-chan Result) *recipes.Lease {
	f.Helper()
	return bubble.Granted(f.Bubble, done)
}

// Outcome waits for the result of an Acquire in the background.
func (f *Fixture) Outcome(done <-chan Result) Result {
	f.Helper()
	return bubble.Receive(f.Bubble, done)
}

// CutAndReconnect cuts a client's connection, and waits until the client has reconnected.
func (f *Fixture) CutAndReconnect(client *recipes.Client) {
	f.Helper()
	states, stop := client.Subscribe()
	defer stop()
	f.Srv.Disconnect(client.Conn().SessionID())
	for state := range states {
		if state == recipes.Reconnected {
			return
		}
	}
}

// RequireRevocation waits for the call of a revocation listener, and requires the call to be about a lease.
func (f *Fixture) RequireRevocation(calls <-chan *recipes.Lease, lease *recipes.Lease) {
	f.Helper()
	select {
	case got := <-calls:
		require.Same(f, lease, got)
	case <-time.After(time.Hour):
		require.FailNow(f, "the listener has not been called")
	}
}
