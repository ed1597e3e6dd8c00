package bubble

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// Bubble is a test in a bubble of testing/synctest, with an ensemble of two servers. Clients that are to meet faults use the
// first server.
type Bubble struct {
	*testing.T
	Srv *zktest.Server
}

// Moment is long enough for everything that takes no time by itself.
const Moment = 10 * time.Millisecond

// Run runs a test in a bubble.
func Run(t *testing.T, test func(b *Bubble), opts ...zktest.Option) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		t.Helper()
		test(&Bubble{t, zktest.NewServer(t, append([]zktest.Option{zktest.WithServers(2)}, opts...)...)})
	})
}

// Pass lets virtual time pass, including all events due at the end of d.
func Pass(d time.Duration) {
	Pause(d)
	synctest.Wait()
}

// Pause sleeps in virtual time, and waits for nobody else.
func Pause(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // virtual time

// Client returns a client that knows only the second server, and meets no faults.
func (b *Bubble) Client(opts ...recipes.Option) *recipes.Client {
	b.Helper()
	return b.Connect(b.Srv.Addrs()[1], opts...)
}

// Troubled returns a client that knows only the first server.
func (b *Bubble) Troubled(opts ...recipes.Option) *recipes.Client {
	b.Helper()
	return b.Connect(b.Srv.Addr(), opts...)
}

// Connect returns a client that knows only the given server.
func (b *Bubble) Connect(server string, opts ...recipes.Option) *recipes.Client {
	b.Helper()
	opts = append([]recipes.Option{recipes.WithSessionTimeout(testclient.SessionTimeout)}, opts...)
	client := zkclient.ConnectTo(b, b.Srv, []string{server}, opts...)
	Pass(Moment)
	return client
}

// Queue returns the paths of the znodes below dir, sorted by the numbers at the end of their names.
func (b *Bubble) Queue(dir string) []string {
	names := b.Srv.Children(dir)
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(a[max(0, len(a)-10):], b[max(0, len(b)-10):]) })
	for i, name := range names {
		names[i] = dir + "/" + name
	}
	return names
}

// Outcome is the result of an acquisition in the background, and its time.
type Outcome[L any] struct {
	Lease L
	Err   error
	At    time.Time
}

// Start runs an acquisition in a goroutine, which ends with the acquisition.
func Start[L any](ctx context.Context, acquire func(context.Context) (L, error)) <-chan Outcome[L] {
	done := make(chan Outcome[L], 1)
	go func() {
		lease, err := acquire(ctx)
		done <- Outcome[L]{lease, err, time.Now()}
	}()
	return done
}

// Waiting starts an acquisition, and requires the acquisition to wait.
func Waiting[L any](b *Bubble, ctx context.Context, acquire func(context.Context) (L, error)) <-chan Outcome[L] { //nolint:revive // as testing.TB goes first
	b.Helper()
	done := Start(ctx, acquire)
	Pass(Moment)
	require.Empty(b, done, "does not wait")
	return done
}

// Receive waits for the outcome of an acquisition.
func Receive[L any](b *Bubble, done <-chan Outcome[L]) Outcome[L] {
	b.Helper()
	select {
	case got := <-done:
		return got
	case <-time.After(time.Hour):
		require.FailNow(b, "the acquisition has not returned")
		return Outcome[L]{}
	}
}

// Granted waits for the lease of an acquisition.
func Granted[L any](b *Bubble, done <-chan Outcome[L]) L {
	b.Helper()
	got := Receive(b, done)
	require.NoError(b, got.Err)
	return got.Lease
}

// Acquire acquires a lock, and fails the test if the acquisition fails.
func Acquire[L any](b *Bubble, acquire func(context.Context) (L, error)) L {
	b.Helper()
	lease, err := acquire(b.Context())
	require.NoError(b, err)
	return lease
}

// Holder is a lease of any lock.
type Holder interface {
	Context() context.Context
	Release() error
}

// Stands requires that no lease has ended.
func (b *Bubble) Stands(leases ...Holder) {
	b.Helper()
	synctest.Wait()
	for _, lease := range leases {
		require.NoError(b, context.Cause(lease.Context()), "the lease has ended")
	}
}

// Cause waits for the end of a lease, and returns the cause.
func (b *Bubble) Cause(lease Holder) error {
	b.Helper()
	select {
	case <-lease.Context().Done():
		return context.Cause(lease.Context())
	case <-time.After(time.Hour):
		require.FailNow(b, "the lease stands after an hour")
		return nil
	}
}

// Release releases leases, and requires every release to succeed.
func (b *Bubble) Release(leases ...Holder) {
	b.Helper()
	for _, lease := range leases {
		require.NoError(b, lease.Release())
	}
}

// Outage stops the first server until over is called. It returns when the server's clients have noticed.
func (b *Bubble) Outage() (over func()) {
	b.Srv.Stop(b.Srv.Addr())
	Pass(Moment)
	return func() { require.NoError(b, b.Srv.Restart(b.Srv.Addr())) }
}

// ExpireUnheard ends a client's session while the client is cut off, which is how sessions expire. The client must be a
// troubled client, and is notified of the expiry at its next handshake.
func (b *Bubble) ExpireUnheard(client *recipes.Client) {
	b.Helper()
	session := client.Conn().SessionID()
	over := b.Outage()
	b.Srv.Expire(session)
	over()
}

// Requests returns the operations of all requests of a log except heartbeats.
func Requests(log *zktest.Log) []zktest.Op {
	var ops []zktest.Op
	for _, r := range log.Requests() {
		if r.Op != zktest.OpPing && r.Op != zktest.OpMulti {
			ops = append(ops, r.Op)
		}
	}
	return ops
}

// Operations returns the operations of all requests of a log.
func Operations(log *zktest.Log) []zktest.Op {
	var ops []zktest.Op
	for _, r := range log.Requests() {
		ops = append(ops, r.Op)
	}
	return ops
}
