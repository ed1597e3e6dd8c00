package bubble

import (
	"cmp"
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

// Bubble is a test in a bubble of testing/synctest, with an ensemble of three servers. Clients that are to meet faults use the
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
		test(&Bubble{t, zktest.NewServer(t, append([]zktest.Option{zktest.WithServers(3)}, opts...)...)})
	})
}

// Pass lets virtual time pass, including all events due at the end of d.
func Pass(d time.Duration) {
	Pause(d)
	synctest.Wait()
}

// Pause sleeps in virtual time, without waiting for other goroutines. Only one goroutine of a bubble may call Pass at a time.
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

// Eventually waits in virtual time until condition holds.
func Eventually(tb testing.TB, limit time.Duration, condition func() bool) {
	tb.Helper()
	testkit.EventuallyIn(tb, limit, func() bool {
		synctest.Wait()
		return condition()
	}, "the condition")
}

// IsClosed reports whether a channel is closed or has a value, without waiting.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Queue returns the paths of the znodes below dir, sorted by the numbers at the end of their names.
func (b *Bubble) Queue(dir string) []string { return Queue(b.Srv, dir) }

// Queue is [Bubble.Queue] for the servers of any test.
func Queue(srv interface{ Children(dir string) []string }, dir string) []string {
	number := func(name string) string { return name[max(0, len(name)-10):] }
	names := srv.Children(dir)
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(strings.Compare(number(a), number(b)), strings.Compare(a, b)) })
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
func Waiting[L any](tb testing.TB, ctx context.Context, acquire func(context.Context) (L, error)) <-chan Outcome[L] { //nolint:revive // testing.TB goes first
	tb.Helper()
	done := Start(ctx, acquire)
	Pass(Moment)
	require.Empty(tb, done, "does not wait")
	return done
}

// Receive waits for the outcome of an acquisition.
func Receive[L any](tb testing.TB, done <-chan Outcome[L]) Outcome[L] {
	tb.Helper()
	select {
	case got := <-done:
		return got
	case <-time.After(time.Hour):
		require.FailNow(tb, "the acquisition has not returned")
		return Outcome[L]{}
	}
}

// Granted waits for the lease of an acquisition.
func Granted[L any](tb testing.TB, done <-chan Outcome[L]) L {
	tb.Helper()
	got := Receive(tb, done)
	require.NoError(tb, got.Err)
	return got.Lease
}

// Acquire acquires a lock, and fails the test if the acquisition fails.
func Acquire[L any](tb testing.TB, acquire func(context.Context) (L, error)) L {
	tb.Helper()
	lease, err := acquire(tb.Context())
	require.NoError(tb, err)
	return lease
}

// Held is a lease of any lock, or an entry of a queue.
type Held interface{ Context() context.Context }

// Holder is a lease of any lock.
type Holder interface {
	Held
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

// Ended waits for the end of a lease, and returns its time and cause.
func Ended(tb testing.TB, lease Held) (time.Time, error) {
	tb.Helper()
	select {
	case <-lease.Context().Done():
		return time.Now(), context.Cause(lease.Context())
	case <-time.After(time.Hour):
		require.FailNow(tb, "the lease stands after an hour")
		return time.Time{}, nil
	}
}

// Cause waits for the end of a lease, and returns the cause.
func Cause(tb testing.TB, lease Held) error {
	tb.Helper()
	_, cause := Ended(tb, lease)
	return cause
}

// Cause is the function [Cause].
func (b *Bubble) Cause(lease Held) error {
	b.Helper()
	return Cause(b, lease)
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
