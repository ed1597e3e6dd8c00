package mutex_test

import (
	"context"
	"flag"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/schedule"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// exhaustive asks for every case, where tests leave some out otherwise to be done within
// seconds.
var exhaustive = flag.Bool("exhaustive", false, "every millisecond for every session timeout, 20,000 acquisitions for ghosts")

// firstSeed is where everything random starts.
var firstSeed = schedule.FirstSeed

// raced is set where the race detector is.
var raced bool

// lock is the path that the tests in virtual time contend for.
const lock = "/locks/a"

// pass lets virtual time go by, and whatever is due at its end happen.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

func connectTo(t *testing.T, srv *zktest.Server, addresses []string, timeout time.Duration) *recipes.Client {
	t.Helper()
	return zkclient.ConnectTo(t, srv, addresses, recipes.WithSessionTimeout(timeout))
}

// adopt returns a client of a connection that it does not own, and is told the session
// timeout.
func adopt(t *testing.T, srv *zktest.Server, server string, timeout time.Duration) *recipes.Client {
	t.Helper()
	conn, events, err := zk.Connect([]string{server}, timeout, zk.WithDialer(srv.Dialer()), zk.WithLogger(quiet{}))
	require.NoError(t, err)
	client, err := recipes.NewClient(conn, events, recipes.WithSessionTimeout(timeout))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.Close())
		conn.Close()
	})
	return client
}

func mutexOn(t *testing.T, client *recipes.Client, path string) *mutex.InterProcessMutex {
	t.Helper()
	m, err := mutex.New(client, path)
	require.NoError(t, err)
	return m
}

func acquire(t *testing.T, m *mutex.InterProcessMutex) *recipes.Lease {
	t.Helper()
	lease, err := m.Acquire(t.Context())
	require.NoError(t, err)
	return lease
}

// ended is when and why a lease's context ended; it waits for that.
func ended(t *testing.T, lease *recipes.Lease) (time.Time, error) {
	t.Helper()
	select {
	case <-lease.Context().Done():
		return time.Now(), context.Cause(lease.Context())
	case <-time.After(time.Hour):
		require.FailNow(t, "the lease stands after an hour")
		return time.Time{}, nil
	}
}

// endOf gets the instant at which a lease's context ends.
func endOf(lease *recipes.Lease) <-chan time.Time {
	end := make(chan time.Time, 1)
	context.AfterFunc(lease.Context(), func() { end <- time.Now() })
	return end
}

// result is what an Acquire in the background has returned, and when.
type result struct {
	lease *recipes.Lease
	err   error
	at    time.Time
}

// acquiring starts an Acquire in the background.
func acquiring(ctx context.Context, m *mutex.InterProcessMutex) <-chan result {
	done := make(chan result, 1)
	go func() { // ends with Acquire, at the latest when the client is closed
		lease, err := m.Acquire(ctx)
		done <- result{lease, err, time.Now()}
	}()
	return done
}

// writes notes when each session has last sent a write. On a line of the bubble a
// request arrives when it is sent.
type writes struct {
	mu   sync.Mutex
	last map[int64]time.Time
}

func noteWrites(srv *zktest.Server) *writes {
	w := &writes{last: map[int64]time.Time{}}
	srv.Inject(func(r zktest.Request) zktest.Fault {
		switch r.Op {
		case zktest.OpCreate2, zktest.OpCreateContainer, zktest.OpDelete, zktest.OpSetData, zktest.OpMulti:
			w.mu.Lock()
			w.last[r.Session] = r.Time
			w.mu.Unlock()
		}
		return zktest.Fault{}
	})
	return w
}

func (w *writes) of(client *recipes.Client) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last[client.Conn().SessionID()]
}

// attempt is Acquire or TryAcquire.
type attempt func(context.Context) (*recipes.Lease, error)

// pause is a sleep in virtual time that leaves other goroutines their turn.
func pause(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // virtual time
