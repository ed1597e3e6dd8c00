package reliability_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// pair is a holder and a waiter for one lock, in sessions of their own.
type pair struct {
	path              string
	holding, awaiting *recipes.Client
	lines             []*faultproxy.Proxy // of the holder; none: it needs none
	first, second     *mutex.InterProcessMutex

	lease *recipes.Lease
	place string           // of the waiter's znode
	lost  <-chan time.Time // when the lease's context ended
	done  <-chan grant     // of the waiter
	least atomic.Int64     // of the trust that was left, as a duration
}

// grant is the result of Acquire, with its time.
type grant struct {
	lease *recipes.Lease
	err   error
	at    time.Time
}

func newPair(t *testing.T, holding, awaiting *recipes.Client) *pair {
	t.Helper()
	p := &pair{path: testkit.Path(t), holding: holding, awaiting: awaiting}
	var err error
	p.first, err = mutex.New(holding, p.path)
	require.NoError(t, err)
	p.second, err = mutex.New(awaiting, p.path)
	require.NoError(t, err)
	return p
}

// acquireAfter acquires in the background, a while later.
func acquireAfter(ctx context.Context, m *mutex.InterProcessMutex, while time.Duration) <-chan grant {
	done := make(chan grant, 1)
	go func() { // ends with ctx; its result is waited for
		pass(ctx, while)
		lease, err := m.Acquire(ctx)
		done <- grant{lease, err, time.Now()}
	}()
	return done
}

// granted waits for the acquisition started by acquireAfter.
func granted(ctx context.Context, t *testing.T, done <-chan grant) grant {
	t.Helper()
	select {
	case g := <-done:
		require.NoError(t, g.err)
		return g
	case <-ctx.Done():
		require.FailNow(t, "Acquire has not returned")
		return grant{}
	}
}

// enter makes each pair's holder hold and its waiter wait. The heartbeats have different phases, and run until a random
// one is in flight or over.
func enter(ctx context.Context, t *testing.T, pairs []*pair, random *rand.Rand) {
	t.Helper()
	beat := pairs[0].holding.SessionTimeout() / 6
	var holds []<-chan grant
	for _, p := range pairs {
		holds = append(holds, acquireAfter(ctx, p.first, upTo(random, beat)))
	}
	for i, p := range pairs {
		p.lease = granted(ctx, t, holds[i]).lease
		p.lost = endOf(p.lease)
		p.follow()
		p.done = acquireAfter(t.Context(), p.second, 0)
	}
	for _, p := range pairs {
		testkit.Eventually(t, func() bool {
			queue, err := p.second.Participants(ctx)
			if err != nil || len(queue) != 2 {
				return false
			}
			p.place = queue[1].Path
			return true
		}, "the waiter's znode")
	}
	pass(ctx, beat+upTo(random, beat))
	for _, p := range pairs {
		p.stands(t)
	}
}

// endOf reports when a lease's context ends.
func endOf(lease *recipes.Lease) <-chan time.Time {
	end := make(chan time.Time, 1)
	context.AfterFunc(lease.Context(), func() { end <- time.Now() })
	return end
}

// follow keeps note of the least trust that was ever left.
func (p *pair) follow() {
	p.least.Store(int64(time.Until(p.lease.TrustedUntil())))
	go func() { // ends with the lease
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				p.least.Store(min(p.least.Load(), int64(time.Until(p.lease.TrustedUntil()))))
			case <-p.lease.Context().Done():
				return
			}
		}
	}()
}

// stands requires that the holder holds, and that the waiter waits.
func (p *pair) stands(t *testing.T) {
	t.Helper()
	require.NoError(t, context.Cause(p.lease.Context()), "the lease has ended")
	select {
	case g := <-p.done:
		require.Failf(t, "the waiter has returned", "%v", g.err)
	default:
	}
}

// proven waits until a write that was sent after the call has proven the lease.
func (p *pair) proven(t *testing.T) {
	t.Helper()
	from := time.Now().Add(p.holding.SessionTimeout() * 2 / 3)
	testkit.Eventually(t, func() bool { return p.lease.Context().Err() != nil || p.lease.TrustedUntil().After(from) }, "proof")
	p.stands(t)
}

// unmoved requires an unchanged queue: the same znodes, the holder's with the lease's token.
func (p *pair) unmoved(ctx context.Context, t *testing.T) {
	t.Helper()
	var queue []recipes.Participant
	var token int64
	testkit.Eventually(t, func() bool {
		var err error
		if queue, err = p.second.Participants(ctx); err != nil {
			return false
		}
		there, stat, err := p.awaiting.Conn().Exists(p.lease.Path())
		if there {
			token = stat.Czxid
		}
		return err == nil
	}, "a server that answers")
	require.Len(t, queue, 2)
	require.Equal(t, p.lease.Path(), queue[0].Path)
	require.Equal(t, p.lease.FencingToken(), token)
	require.Equal(t, p.place, queue[1].Path, "the waiter's place")
	p.stands(t)
}

// handOver releases the lock, which the waiter gets in its old place, and leaves nothing.
func (p *pair) handOver(ctx context.Context, t *testing.T) {
	t.Helper()
	require.NoError(t, p.lease.Release())
	next := granted(ctx, t, p.done)
	require.Equal(t, p.place, next.lease.Path(), "the place is kept")
	require.Greater(t, next.lease.FencingToken(), p.lease.FencingToken())
	require.NoError(t, next.lease.Release())
	p.empty(ctx, t)
}

// empty waits until no client holds or awaits the lock.
func (p *pair) empty(ctx context.Context, t *testing.T) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		queue, err := p.second.Participants(ctx)
		return err == nil && len(queue) == 0
	}, "nothing is left")
}
