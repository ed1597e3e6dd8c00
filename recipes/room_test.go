package recipes_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

// places is the number of contenders of one client that wait with a znode on one path.
const places = 500

// crowd starts acquisitions one after the other, and reports the order of the grants.
type crowd struct {
	*bubble.Bubble
	granted chan grant
	count   int
}

type grant struct {
	number int // in the order of arrival
	lease  *recipes.Lease
	err    error
}

func newCrowd(b *bubble.Bubble) *crowd { return &crowd{Bubble: b, granted: make(chan grant, 10_000)} }

// start starts n acquisitions. Those beyond the places start one after the other.
func (c *crowd) start(ctx context.Context, n int, acquire func(context.Context) (*recipes.Lease, error)) {
	for range n {
		number := c.count
		c.count++
		go func() { // ends with the acquisition
			lease, err := acquire(ctx)
			c.granted <- grant{number, lease, err}
		}()
		bubble.Pass(0)
	}
}

func (c *crowd) next() grant {
	c.Helper()
	select {
	case g := <-c.granted:
		return g
	case <-time.After(time.Hour):
		require.FailNow(c, "nobody is granted")
		return grant{}
	}
}

// Callers beyond the places wait without a znode, and are granted in order of arrival. TryAcquire, Participants and the
// contexts work as usual.
func TestWaitersBeyondThePlaces(t *testing.T) {
	early := places + testkit.Shorter(places+50, 50)
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		m := mutexOn(b, client, "/m")
		held := bubble.Acquire(b, m.Acquire)
		c := newCrowd(b)
		c.start(b.Context(), early, m.Acquire)
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		c.start(ctx, 20, m.Acquire) // they give up
		c.start(b.Context(), 30, m.Acquire)
		requirePlaces := func(others int) {
			require.LessOrEqual(b, len(b.Srv.Children("/m")), places+others)
		}
		requirePlaces(1)
		all, err := m.Participants(b.Context())
		require.NoError(b, err)
		require.Len(b, all, places+1, "each contender with a znode")
		_, err = m.TryAcquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired)
		for range 20 {
			g := c.next()
			require.ErrorIs(b, g.err, context.DeadlineExceeded)
			wait, ok := zkutil.AsType[*recipes.WaitError](g.err)
			require.True(b, ok)
			require.Zero(b, wait.Position)
			require.GreaterOrEqual(b, wait.Waited, time.Second)
		}
		stranger := bubble.Waiting(b, b.Context(), mutexOn(b, b.Client(), "/m").Acquire)
		last := -1
		b.Release(held)
		for i := range early + 30 {
			g := c.next()
			require.NoError(b, g.err)
			require.Greater(b, g.number, last, "in the order in which they came")
			last = g.number
			require.Empty(b, stranger)
			requirePlaces(2)
			b.Release(g.lease)
			if i == places-1 { // a turn counts from the znode
				b.Release(bubble.Granted(b, stranger))
			}
		}
		require.Empty(b, b.Srv.Children("/m"))
	})
}

// A session that ends while callers wait without a znode costs none of them the turn, and callers that had a znode
// stay ahead.
func TestSessionLostWithWaitersBeyondThePlaces(t *testing.T) {
	many := places + testkit.Shorter(200, 50)
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		other := bubble.Acquire(b, mutexOn(b, b.Client(), "/m").Acquire)
		m := mutexOn(b, client, "/m")
		c := newCrowd(b)
		c.start(b.Context(), many, m.Acquire)
		b.ExpireUnheard(client)
		bubble.Pass(20 * time.Second)
		require.Len(b, b.Srv.Children("/m"), places+1)
		b.Release(other)
		seen := map[int]bool{}
		for i := range many {
			g := c.next()
			require.NoError(b, g.err)
			require.Equal(b, i < places, g.number < places, "number %d is granted as number %d", g.number, i)
			seen[g.number] = true
			b.Release(g.lease)
		}
		require.Len(b, seen, many)
	})
}

// Close ends the wait of those without a znode.
func TestCloseWithWaitersBeyondThePlaces(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		m := mutexOn(b, client, "/m")
		bubble.Acquire(b, m.Acquire)
		c := newCrowd(b)
		c.start(b.Context(), places+100, m.Acquire)
		log := b.Srv.Observe()
		require.NoError(b, client.Close())
		for range places + 100 {
			require.ErrorIs(b, c.next().err, recipes.ErrClosed)
		}
		require.Zero(b, len(log.Requests())-len(bubble.Requests(log)), "heartbeats")
		require.Empty(b, b.Srv.Children("/m"))
	})
}

// Readers that hold take no places, so any number of them hold together. Readers that wait behind a writer fill the places.
// The writer behind them keeps its position, and so do the readers behind the writer.
func TestReadersBeyondThePlaces(t *testing.T) {
	many := places + testkit.Shorter(300, 50)
	bubble.Run(t, func(b *bubble.Bubble) {
		l, err := rwlock.New(b.Client(), "/rw")
		require.NoError(b, err)
		writer := bubble.Acquire(b, l.WriteLock().Acquire)
		readers, writers, late := newCrowd(b), newCrowd(b), newCrowd(b)
		readers.start(b.Context(), many, l.ReadLock().Acquire)
		writers.start(b.Context(), 1, l.WriteLock().Acquire)
		late.start(b.Context(), 2, l.ReadLock().Acquire)
		require.Len(b, b.Srv.Children("/rw"), places+1)
		b.Release(writer)
		var held []bubble.Holder
		for range many {
			g := readers.next()
			require.NoError(b, g.err)
			held = append(held, g.lease)
		}
		b.Stands(held...)
		_, err = l.ReadLock().TryAcquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired, "behind the writer")
		bubble.Pass(time.Minute)
		require.Empty(b, writers.granted)
		require.Empty(b, late.granted)
		b.Release(held...)
		g := writers.next()
		require.NoError(b, g.err)
		require.Empty(b, late.granted)
		b.Release(g.lease)
		for range 2 {
			g := late.next()
			require.NoError(b, g.err)
			b.Release(g.lease)
		}
	})
}

// If the bytes of the session are used up, a caller on a path in use waits, and a caller on another path is refused. A holder
// that acquires another lock does not wait for callers that wait for this holder.
func TestWaitersInAFullSession(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		const paths, each = 4, 50
		limit := paths * costOf("/0", "lock-")
		requireBudget(b, limit)
		client := b.Client(recipes.WithMaxSessionBytes(limit))
		held := make([]*recipes.Lease, paths)
		crowds := make([]*crowd, paths)
		for i := range paths {
			m := mutexOn(b, client, fmt.Sprintf("/%d", i))
			held[i], crowds[i] = bubble.Acquire(b, m.Acquire), newCrowd(b)
		}
		for i, c := range crowds {
			c.start(b.Context(), each, mutexOn(b, client, fmt.Sprintf("/%d", i)).Acquire)
		}
		nested, err := mutexOn(b, client, "/0").Acquire(held[0].Context())
		require.NoError(b, err, "a re-entry needs no place")
		b.Release(nested)
		requireFull(b, func(context.Context) (*recipes.Lease, error) {
			return mutexOn(b, client, "/z").Acquire(held[0].Context())
		})
		for i, c := range crowds {
			b.Release(held[i])
			for number := range each {
				g := c.next()
				require.NoError(b, g.err)
				require.Equal(b, number, g.number)
				b.Release(g.lease)
			}
		}
		require.Empty(b, ephemerals(b.Srv, "/", map[int64]int{}))
	})
}
