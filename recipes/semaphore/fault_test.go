package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// room counts who holds permits at a time.
type room struct {
	mu     sync.Mutex // protects what is below
	inside int
	turns  int
	most   int
}

// stay takes n permits, stays, and gives them back. A try in vain is no error.
func (r *room) stay(ctx context.Context, acquire func(context.Context, int) ([]*recipes.Lease, error), n int) error {
	held, err := acquire(ctx, n)
	if errors.Is(err, recipes.ErrNotAcquired) {
		return nil
	}
	if err == nil && len(held) != n {
		err = fmt.Errorf("%d permits in place of %d", len(held), n)
	}
	r.count(n)
	time.Sleep(time.Millisecond) //nolint:forbidigo // virtual time
	r.count(-n)
	for _, lease := range held {
		err = errors.Join(err, lease.Release())
	}
	return err
}

func (r *room) count(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside += n
	r.most = max(r.most, r.inside)
	if n > 0 {
		r.turns++
	}
}

// join waits for goroutines that send one error each, and names the ones that are stuck.
func join(b *bubble.Bubble, done chan error) {
	b.Helper()
	for range cap(done) {
		select {
		case err := <-done:
			require.NoError(b, err)
		case <-time.After(24 * time.Hour):
			require.FailNow(b, "stuck", "%v %v", b.Queue(locks.Turns), b.Queue(locks.Permits))
		}
	}
	locks.RequireNoPermits(b)
}

// Two clients that want all permits, again and again: neither ever holds a part and waits for the rest.
func TestAllOrNothing(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		const limit = 3
		rounds := testkit.Shorter(1000, 200)
		if *testkit.Exhaustive {
			rounds = 10_000
		}
		var all room
		done := make(chan error, 2)
		for range cap(done) {
			s := locks.SemaphoreOf(b, b.Client(recipes.WithSessionTimeout(time.Hour)), limit)
			go func() { // ends with its rounds; joined below
				var err error
				for range rounds / 2 {
					err = errors.Join(err, all.stay(b.Context(), s.AcquireN, limit))
				}
				done <- err
			}()
		}
		join(b, done)
		require.Equal(b, rounds, all.turns)
		require.Equal(b, limit, all.most)
	})
}

// Another client deletes the znode of the turn at each request of an acquisition, and joins at once. The limit holds, because
// the numbers of the permits decide, and no request is stuck.
func TestTurnIsLostAtEachStep(t *testing.T) {
	for n := range 12 {
		for _, want := range []int{1, 2} {
			bubble.Run(t, func(b *bubble.Bubble) { loseTurn(b, n, want) })
		}
	}
}

// loseTurn has two clients want permits, of whom the first loses its turn at the n-th request.
func loseTurn(b *bubble.Bubble, n, want int) {
	b.Helper()
	client := b.Client()
	s, other := locks.SemaphoreOf(b, client, 2), locks.SemaphoreOf(b, b.Client(), 2)
	b.Release(bubble.Acquire(b, s.Acquire), bubble.Acquire(b, other.Acquire))
	session, count := client.Conn().SessionID(), 0
	b.Srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Session != session || r.Op == zktest.OpPing {
			return zktest.Fault{}
		}
		if count++; count != n+1 {
			return zktest.Fault{}
		}
		for _, turn := range b.Queue(locks.Turns) {
			b.Srv.Delete(turn)
		}
		return zktest.Fault{Delay: time.Second}
	})
	var all room
	done := make(chan error, 2)
	for _, s := range []*semaphore.InterProcessSemaphore{s, other} {
		go func() { done <- all.stay(b.Context(), s.AcquireN, want) }() // joined below
	}
	for range cap(done) {
		require.NoError(b, <-done)
	}
	require.Equal(b, 2, all.turns)
	require.LessOrEqual(b, all.most, 2)
	bubble.Pass(10 * time.Second)
	locks.RequireNoPermits(b)
}

// A waiter whose turn is lost in the instant in which its context ends gets the error of the context, because only that error
// is permanent.
func TestTurnIsLostAsTheContextEnds(t *testing.T) {
	for i := range 20 { // the order of the two is left to chance
		bubble.Run(t, func(b *bubble.Bubble) {
			client := b.Troubled()
			held := bubble.Acquire(b, locks.SemaphoreOf(b, b.Client(), 1).Acquire)
			other, err := mutex.New(client, "/other")
			require.NoError(b, err)
			lease := bubble.Acquire(b, other.Acquire)
			waiter := locks.SemaphoreOf(b, client, 1)
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			failed := make(chan error, 1)
			go func() { // ends with ctx
				_, err := waiter.Acquire(ctx)
				failed <- err
			}()
			bubble.Pass(time.Minute)
			b.Srv.Partition(client.Conn().SessionID())
			time.AfterFunc(time.Until(lease.TrustedUntil()), cancel)
			require.ErrorIs(b, <-failed, context.Canceled, "play %d", i)
			b.Release(held)
		})
	}
}

// A lost request or answer at each step: all permits or none, and nothing is left (Curator's testAcquireAfterLostServer).
func TestFaultAtEachRequest(t *testing.T) {
	for n := range 12 {
		for name, lost := range map[string]zktest.Loss{"request": zktest.RequestLost, "answer": zktest.ReplyLost} {
			bubble.Run(t, func(b *bubble.Bubble) {
				client := b.Client()
				s := locks.SemaphoreOf(b, client, 2)
				b.Release(bubble.Acquire(b, s.Acquire))
				session, count := client.Conn().SessionID(), 0
				b.Srv.Inject(func(r zktest.Request) zktest.Fault {
					if r.Session != session || r.Op == zktest.OpPing || r.Op == zktest.OpSetWatches {
						return zktest.Fault{}
					}
					if count++; count == n+1 {
						return zktest.Fault{Lost: lost}
					}
					return zktest.Fault{}
				})
				held := bubble.Acquire(b, locks.Many(s, 2))
				bubble.Pass(10 * time.Second)
				paths := []string{held[0].Path(), held[1].Path()}
				slices.Sort(paths)
				queue := b.Queue(locks.Permits)
				slices.Sort(queue)
				require.Equal(b, paths, queue, "lost %s %d", name, n)
				require.Empty(b, b.Queue(locks.Turns))
				locks.ReleaseAll(b, held)
			})
		}
	}
}

// The context ends at each step (Curator's testInterruptAcquire): all permits or none.
func TestCancelAtEachStep(t *testing.T) {
	for at := time.Duration(0); at < 1200*time.Millisecond; at += 50 * time.Millisecond {
		bubble.Run(t, func(b *bubble.Bubble) {
			s := locks.SemaphoreOf(b, b.Client(), 2)
			b.Release(bubble.Acquire(b, s.Acquire))
			b.Srv.Delay(zktest.OpAny, 100*time.Millisecond)
			ctx, cancel := context.WithTimeout(b.Context(), at)
			defer cancel()
			held, err := s.AcquireN(ctx, 2)
			if err == nil {
				locks.ReleaseAll(b, held)
			} else {
				require.ErrorIs(b, err, context.DeadlineExceeded)
				require.Nil(b, held)
			}
			bubble.Pass(2 * time.Second)
			locks.RequireNoPermits(b)
		})
	}
}

// Curator's testNoOrphanedNodes and testKilledSession: a znode of ours is deleted, or our session ends, while we wait for a
// turn or, in turn, for a permit. We join again at the tail, and get the permit.
func TestLostWhileWaiting(t *testing.T) {
	for _, isFirst := range []bool{true, false} {
		for _, isExpiry := range []bool{true, false} {
			bubble.Run(t, func(b *bubble.Bubble) {
				held := bubble.Acquire(b, locks.SemaphoreOf(b, b.Client(), 1).Acquire)
				var ahead <-chan bubble.Outcome[*recipes.Lease]
				if !isFirst {
					ahead = bubble.Waiting(b, b.Context(), locks.SemaphoreOf(b, b.Client(), 1).Acquire)
				}
				client := b.Troubled()
				waiting := bubble.Waiting(b, b.Context(), locks.SemaphoreOf(b, client, 1).Acquire)
				queue := b.Queue(locks.Turns)
				if own := queue[len(queue)-1]; isExpiry {
					b.ExpireUnheard(client)
				} else {
					b.Srv.Delete(own)
				}
				bubble.Pass(10 * time.Second)
				require.Empty(b, waiting)
				require.Len(b, b.Queue(locks.Turns), len(queue))
				require.Len(b, b.Queue(locks.Permits), 1)
				b.Release(held)
				if ahead != nil {
					b.Release(bubble.Granted(b, ahead))
				}
				b.Release(bubble.Granted(b, waiting))
				locks.RequireNoPermits(b)
			})
		}
	}
}

// Curator's testClientClose: the permits of a client that is closed, or dies, are free (CURATOR-335, -595), and one permit of
// several may be lost separately.
func TestPermitsOfTheDead(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		closed, dead := b.Client(), b.Troubled()
		held := append(bubble.Acquire(b, locks.Many(locks.SemaphoreOf(b, closed, 4), 2)), bubble.Acquire(b, locks.Many(locks.SemaphoreOf(b, dead, 4), 2))...)
		waiting := bubble.Waiting(b, b.Context(), locks.Many(locks.SemaphoreOf(b, b.Client(), 4), 4))
		b.Srv.Delete(held[3].Path())
		require.ErrorIs(b, b.Cause(held[3]), recipes.ErrNodeDeleted)
		b.Stands(held[0], held[1], held[2])
		require.NoError(b, closed.Close())
		require.ErrorIs(b, b.Cause(held[0]), recipes.ErrClosed)
		bubble.Pass(time.Second)
		require.Empty(b, waiting)
		b.Srv.Partition(dead.Conn().SessionID())
		all := bubble.Granted(b, waiting)
		require.ErrorIs(b, context.Cause(held[2].Context()), recipes.ErrSessionLost, "told before the next grant")
		locks.ReleaseAll(b, all)
	})
}
