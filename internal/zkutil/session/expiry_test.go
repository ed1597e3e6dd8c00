package session_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

const (
	raceTimeout = 6 * time.Second
	latency     = 10 * time.Millisecond // of each answer that a race takes time for
)

// race is a client whose session expires, and another one to check for leftovers.
type race struct {
	t       *testing.T
	srv     *zktest.Server
	client  *recipes.Client
	mutex   *mutex.InterProcessMutex
	witness *mutex.InterProcessMutex
	token   int64 // the highest so far
}

func newRace(t *testing.T) *race {
	t.Helper()
	srv := zktest.NewServer(t, zktest.WithServers(2))
	r := &race{t: t, srv: srv, client: zkclient.ConnectTo(t, srv, srv.Addrs()[:1], recipes.WithSessionTimeout(raceTimeout))}
	r.mutex = locks.MutexOn(t, r.client, locks.Path)
	r.witness = locks.MutexOn(t, zkclient.ConnectTo(t, srv, srv.Addrs()[1:], recipes.WithSessionTimeout(raceTimeout)), locks.Path)
	return r
}

// slowDown delays each answer to the client until it is undone.
func (r *race) slowDown() (stop func()) {
	return r.srv.Inject(func(q zktest.Request) zktest.Fault {
		if q.Server != r.srv.Addrs()[0] || q.Op == zktest.OpConnect {
			return zktest.Fault{}
		}
		return zktest.Fault{Delay: latency}
	})
}

// expire ends the client's current session.
func (r *race) expire() {
	if id := r.client.Conn().SessionID(); id != 0 {
		r.srv.Expire(id)
	}
}

// granted checks a fresh lease: it is valid with a znode of the live session, or its context is over.
func (r *race) granted(lease *recipes.Lease) {
	r.t.Helper()
	_, stat, there := r.srv.Get(lease.Path())
	synctest.Wait() // an expiry at this very instant is known now
	if context.Cause(lease.Context()) != nil {
		require.ErrorIs(r.t, context.Cause(lease.Context()), recipes.ErrSessionLost)
		return
	}
	require.True(r.t, there, "granted without a znode")
	require.Equal(r.t, stat.Czxid, lease.FencingToken())
	_, alive := r.srv.Session(stat.EphemeralOwner)
	require.True(r.t, alive, "granted to a session that is over")
	require.Equal(r.t, r.client.Conn().SessionID(), stat.EphemeralOwner)
	require.Greater(r.t, lease.FencingToken(), r.token)
	r.token = lease.FencingToken()
}

// released compares the result of Release with the end of the lease.
func (r *race) released(lease *recipes.Lease, err error) {
	r.t.Helper()
	cause := context.Cause(lease.Context())
	require.Error(r.t, cause, "the context has ended when Release returns")
	if err != nil {
		require.ErrorIs(r.t, err, recipes.ErrSessionLost)
		require.ErrorIs(r.t, cause, recipes.ErrSessionLost)
	} else {
		require.ErrorIs(r.t, cause, recipes.ErrReleased)
	}
	require.ErrorIs(r.t, lease.Release(), recipes.ErrNotHeld)
}

// settled requires that nothing is left, by granting the witness the lock at once.
func (r *race) settled() {
	r.t.Helper()
	bubble.Pass(time.Second)
	require.Empty(r.t, r.srv.Children(locks.Path))
	for _, session := range r.srv.Sessions() {
		require.Empty(r.t, session.Ephemerals)
	}
	start := time.Now()
	lease := bubble.Acquire(r.t, r.witness.Acquire)
	require.Equal(r.t, start, time.Now())
	require.Greater(r.t, lease.FencingToken(), r.token)
	r.token = lease.FencingToken()
	require.NoError(r.t, lease.Release())
}

// The session ends before the n-th request of an acquire and release, for each n, and just after its execution. The
// lease is acquired in another session or lost.
func TestExpiryAtEveryRequest(t *testing.T) {
	for name, executed := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				r := newRace(t)
				for n, met := 1, true; met; n++ {
					var seen atomic.Int32
					stop := r.srv.Inject(func(q zktest.Request) zktest.Fault {
						switch {
						case q.Server != r.srv.Addrs()[0] || q.Op == zktest.OpPing || q.Op == zktest.OpConnect,
							int(seen.Add(1)) != n:
							return zktest.Fault{}
						case !executed:
							r.srv.Expire(q.Session)
							return zktest.Fault{}
						}
						time.AfterFunc(latency/2, func() { r.srv.Expire(q.Session) })
						return zktest.Fault{Delay: latency}
					})
					lease := bubble.Acquire(t, r.mutex.Acquire)
					r.granted(lease)
					r.released(lease, lease.Release())
					stop()
					r.settled()
					met = int(seen.Load()) >= n
					require.True(t, met || n > 3, "create, list, delete")
				}
			})
		})
	}
}

// The session ends at every millisecond of an acquire, a hold and a release whose
// answers take 10 ms each.
func TestExpiryAgainstRelease(t *testing.T) {
	const hold = 3 * latency
	testkit.Bubble(t, func(t *testing.T) {
		r := newRace(t)
		for at := time.Duration(0); at < 8*latency; at += time.Millisecond {
			stop := r.slowDown()
			timer := time.AfterFunc(at, r.expire)
			lease := bubble.Acquire(t, r.mutex.Acquire)
			r.granted(lease)
			select {
			case <-lease.Context().Done():
			case <-time.After(hold):
			}
			r.released(lease, lease.Release())
			timer.Stop()
			stop()
			r.settled()
		}
	})
}

// The session of the next in the queue ends around the instant at which the lock gets
// free. The contender behind gets the lock, and it is never held twice.
func TestExpiryAgainstGrant(t *testing.T) {
	const free = 8 * latency
	rounds := 20 // the same instant has many orders
	if testing.Short() {
		rounds = 1
	}
	for range rounds {
		testkit.Bubble(t, func(t *testing.T) {
			r := newRace(t)
			for at := free - 15*time.Millisecond; at <= free+15*time.Millisecond; at += time.Millisecond {
				stop := r.slowDown()
				first := bubble.Acquire(t, r.witness.Acquire)
				timer := time.AfterFunc(at, r.expire)
				next := bubble.Start(t.Context(), r.mutex.Acquire)
				bubble.Pass(free / 2)
				behind := bubble.Start(t.Context(), r.witness.Acquire)
				time.Sleep(free / 2) //nolint:forbidigo // virtual time
				r.token = first.FencingToken()
				require.NoError(t, first.Release())
				for range 2 {
					select {
					case got := <-next:
						require.NoError(t, got.Err)
						r.granted(got.Lease)
						r.released(got.Lease, got.Lease.Release())
					case got := <-behind:
						require.NoError(t, got.Err)
						require.Greater(t, got.Lease.FencingToken(), r.token)
						r.token = got.Lease.FencingToken()
						require.NoError(t, got.Lease.Release())
					}
				}
				timer.Stop()
				stop()
				r.settled()
			}
		})
	}
}

// The caller gives up at any instant of an acquire, and the session ends at any other. The leftovers of both are
// removed.
func TestExpiryAgainstCancel(t *testing.T) {
	const span = 5 * latency
	step := 2 * time.Millisecond
	if testing.Short() {
		step = 9 * time.Millisecond
	}
	for name, held := range map[string]bool{"free": false, "held": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				r := newRace(t)
				for cancelAt := time.Duration(0); cancelAt < span; cancelAt += step {
					for expireAt := time.Duration(0); expireAt < span; expireAt += step {
						r.cancelled(held, cancelAt, expireAt)
					}
				}
			})
		})
	}
}

// cancelled is one abandoned acquire.
func (r *race) cancelled(held bool, cancelAt, expireAt time.Duration) {
	r.t.Helper()
	var holder *recipes.Lease
	if held {
		holder = bubble.Acquire(r.t, r.witness.Acquire)
		r.token = holder.FencingToken()
	}
	stop := r.slowDown()
	ctx, cancel := context.WithCancel(r.t.Context())
	expiry, giveUp := time.AfterFunc(expireAt, r.expire), time.AfterFunc(cancelAt, cancel)
	start := time.Now()
	lease, err := r.mutex.Acquire(ctx)
	switch {
	case err == nil:
		require.False(r.t, held)
		r.granted(lease)
		r.released(lease, lease.Release())
	case errors.Is(err, context.Canceled):
		require.Equal(r.t, cancelAt, time.Since(start), "at once")
	default:
		require.NoError(r.t, err)
	}
	giveUp.Stop()
	time.Sleep(time.Until(start.Add(expireAt))) //nolint:forbidigo // virtual time
	synctest.Wait()
	expiry.Stop()
	cancel()
	stop()
	if held {
		require.NoError(r.t, holder.Release())
	}
	r.settled()
}

// A server reports that a session expired, but neither closes the connection nor removes the session. The client asks
// again in a handshake, and is served.
func TestServerThatOnlySaysExpired(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := zkclient.ConnectTo(t, srv, srv.Addrs(), recipes.WithSessionTimeout(raceTimeout))
		m := locks.MutexOn(t, client, locks.Path)
		var handshakes atomic.Int32
		srv.Inject(func(q zktest.Request) zktest.Fault {
			if q.Op == zktest.OpConnect {
				handshakes.Add(1)
			}
			if q.Op != zktest.OpConnect && q.Op != zktest.OpPing && handshakes.Load() == 0 {
				return zktest.Fault{Refusal: zktest.RefuseSessionExpired}
			}
			return zktest.Fault{}
		})
		began := time.Now()
		lease, err := m.Acquire(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(began), raceTimeout)
		require.NoError(t, lease.Release())
	})
}
