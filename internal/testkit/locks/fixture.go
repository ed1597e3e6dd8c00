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
	return MutexOn(f, client, Path, opts...)
}

// Contenders returns the paths of the znodes below the path, sorted by the numbers at the end of their names.
func (f *Fixture) Contenders() []string { return f.Queue(Path) }

// Waiting starts an Acquire in the background, and requires the contender to wait as the last in the queue.
func (f *Fixture) Waiting(ctx context.Context, m *mutex.InterProcessMutex) <-chan bubble.Outcome[*recipes.Lease] {
	f.Helper()
	before := len(f.Contenders())
	done := bubble.Waiting(f, ctx, m.Acquire)
	require.Len(f, f.Contenders(), before+1, "the waiter's znode")
	return done
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
