package session_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// silence is a way in which a client loses contact with the quorum without an event. The server is the client's only
// one.
type silence func(srv *zktest.Server, session int64, server string)

func partition(srv *zktest.Server, session int64, _ string) { srv.Partition(session) }
func freeze(srv *zktest.Server, _ int64, server string)     { srv.Freeze(server) }
func isolate(srv *zktest.Server, _ int64, server string)    { srv.Isolate(server) }

// duel is a lock that moves from one client to the other each time the holder falls silent, so that one bubble has
// room for thousands of losses.
type duel struct {
	t       *testing.T
	srv     *zktest.Server
	began   time.Time
	timeout time.Duration
	horizon time.Duration // how long a write proves the session
	writes  *writes
	holder  *peer
	waiter  *peer
	lease   *recipes.Lease
	waiting <-chan bubble.Outcome[*recipes.Lease]
}

// peer is one of the two clients, each with its own server.
type peer struct {
	client      *recipes.Client
	server      string
	lock, other *mutex.InterProcessMutex
}

func newDuel(t *testing.T, timeout time.Duration, opts ...zktest.Option) *duel {
	t.Helper()
	srv := zktest.NewServer(t, append(opts, zktest.WithServers(2))...)
	d := &duel{t: t, srv: srv, began: time.Now(), timeout: timeout, horizon: timeout * 2 / 3, writes: noteWrites(srv)}
	d.begin(func(server string) *recipes.Client {
		return zkclient.ConnectTo(t, srv, []string{server}, recipes.WithSessionTimeout(timeout))
	})
	bubble.Pass(timeout) // each server has reported the new sessions
	return d
}

func (d *duel) begin(connect func(server string) *recipes.Client) {
	d.t.Helper()
	for i, p := range []**peer{&d.holder, &d.waiter} {
		server := d.srv.Addrs()[i]
		client := connect(server)
		*p = &peer{client, server, locks.MutexOn(d.t, client, locks.Path), locks.MutexOn(d.t, client, "/locks/"+server)}
	}
	d.lease = bubble.Acquire(d.t, d.holder.lock.Acquire)
	d.waiting = bubble.Start(d.t.Context(), d.waiter.lock.Acquire)
}

// beat waits for the holder's next heartbeat.
func (d *duel) beat() {
	d.t.Helper()
	for len(d.srv.Children(locks.Path)) < 2 { // the loser of the last round joins again
		bubble.Pass(d.timeout / 60)
	}
	due := d.writes.of(d.holder.client).Add(d.timeout / 6)
	bubble.Pass(time.Until(due))
	require.Equal(d.t, due, d.writes.of(d.holder.client), "a heartbeat every T/6")
}

// fall silences the holder now and checks how the lease ends: at the very instant of the deadline, before the
// server's expiry by the returned margin, and before the waiter's grant, which follows the expiry.
func (d *duel) fall(how silence) (margin time.Duration) {
	d.t.Helper()
	t := d.t
	session, alive := d.srv.Session(d.holder.client.Conn().SessionID())
	require.True(t, alive)
	how(d.srv, session.ID, d.holder.server)
	deadline := d.writes.of(d.holder.client).Add(d.horizon)
	require.Equal(t, deadline, d.lease.TrustedUntil())

	at, cause := bubble.Ended(t, d.lease)
	require.ErrorIs(t, cause, recipes.ErrSessionLost)
	require.Equal(t, deadline, at)
	require.Equal(t, deadline, d.lease.TrustedUntil(), "the last deadline stays readable")
	require.Empty(t, d.waiting, "granted before the holder knew")
	after, alive := d.srv.Session(session.ID)
	require.True(t, alive, "expired before the holder knew")
	require.Equal(t, session.Expiry, after.Expiry, "heard of in the silence")
	require.Less(t, at, session.Expiry)
	require.ErrorIs(t, d.lease.Release(), recipes.ErrSessionLost)

	next := <-d.waiting
	require.NoError(t, next.Err)
	require.Equal(t, session.Expiry, next.At, "granted as soon as the server can")
	require.Greater(t, next.Lease.FencingToken(), d.lease.FencingToken())
	d.srv.Heal()
	d.lease, d.waiting = next.Lease, bubble.Start(t.Context(), d.holder.lock.Acquire)
	d.holder, d.waiter = d.waiter, d.holder
	return session.Expiry.Sub(at)
}

// sweep calls round for every step-th millisecond of a heartbeat cycle, 0 included.
func sweep(timeout, step time.Duration, round func(offset time.Duration)) {
	for offset := time.Duration(0); offset < timeout/6; offset += step {
		round(offset)
	}
}

// stepFor is a millisecond where that is asked for, or takes no long time.
func stepFor(timeout time.Duration) time.Duration {
	step := time.Millisecond
	if timeout > 4*time.Second {
		step = timeout / 600 // a hundred offsets
	}
	switch {
	case *testkit.Exhaustive:
		return time.Millisecond
	case testing.Short():
		return 31 * step
	case testkit.IsRaced:
		return 7 * step
	default:
		return step
	}
}

var timeouts = []time.Duration{
	time.Second, 2 * time.Second, 4 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// A holder that falls silent at any millisecond of its heartbeat cycle loses its lease
// at the deadline, which is the last committed write's send time + 2T/3 to the
// nanosecond, and a third of T before the server gives the lock away.
func TestSilenceAtEveryMillisecond(t *testing.T) {
	for name, how := range map[string]silence{"partition": partition, "freeze": freeze, "isolate": isolate} {
		for _, timeout := range timeouts {
			t.Run(name+"/"+timeout.String(), func(t *testing.T) {
				t.Parallel()
				testkit.Bubble(t, func(t *testing.T) {
					d := newDuel(t, timeout, zktest.WithTickTime(time.Millisecond))
					sweep(timeout, stepFor(timeout), func(offset time.Duration) {
						d.beat()
						bubble.Pass(offset)
						require.GreaterOrEqual(t, d.fall(how), timeout/3)
					})
				})
			})
		}
	}
}

// The servers' reports to their leader are as rare as a server allows, and the holder
// falls silent a millisecond before the next one: T/12 is left, and hardly more.
func TestMarginAtTheWorstInstant(t *testing.T) {
	for _, timeout := range timeouts {
		t.Run(timeout.String(), func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				reports := timeout / 4
				d := newDuel(t, timeout, zktest.WithTickTime(time.Millisecond), zktest.WithTouchInterval(reports))
				least := timeout
				sweep(timeout, stepFor(timeout), func(offset time.Duration) {
					d.beat()
					fall := time.Since(d.began).Truncate(reports) + 3*reports - time.Millisecond
					bubble.Pass(time.Until(d.began.Add(fall - offset)))
					require.NoError(t, bubble.Acquire(t, d.holder.other.Acquire).Release()) // a write begins a cycle
					require.Equal(t, time.Now(), d.writes.of(d.holder.client))
					bubble.Pass(offset)
					margin := d.fall(isolate)
					require.GreaterOrEqual(t, margin, timeout/12, "at %v", offset)
					least = min(least, margin)
				})
				require.Less(t, least, timeout/12+3*time.Millisecond, "this was the worst case")
			})
		})
	}
}

// For every interval of the reports and every phase of the silence, T/12 remains.
func TestMarginAtOtherReportIntervals(t *testing.T) {
	const timeout = 6 * time.Second
	for _, parts := range []time.Duration{5, 6, 7, 8, 9, 13, 40} {
		t.Run((timeout / parts).String(), func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				d := newDuel(t, timeout, zktest.WithTickTime(time.Millisecond), zktest.WithTouchInterval(timeout/parts))
				sweep(timeout, testkit.Shorter(10*time.Millisecond, 70*time.Millisecond), func(offset time.Duration) {
					d.beat()
					bubble.Pass(offset)
					require.GreaterOrEqual(t, d.fall(freeze), timeout/12, "at %v", offset)
				})
			})
		})
	}
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
