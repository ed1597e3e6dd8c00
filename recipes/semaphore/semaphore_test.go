package semaphore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Curator's testSimple, testSimple2, testMaxPerSession, testRelease1AtATime: any number of clients hold no more permits than
// the limit, and each released permit can be acquired again.
func TestLimit(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		one, other := locks.SemaphoreOf(b, b.Client(), 3), locks.SemaphoreOf(b, b.Client(), 3)
		held := []*recipes.Lease{bubble.Acquire(b, one.Acquire), bubble.Acquire(b, other.TryAcquire), bubble.Acquire(b, one.Acquire)}
		for _, s := range []*semaphore.InterProcessSemaphore{one, other} {
			_, err := s.TryAcquire(b.Context())
			require.ErrorIs(b, err, recipes.ErrNotAcquired)
		}
		require.Len(b, b.Queue(locks.Permits), 3)
		require.Empty(b, b.Queue(locks.Turns), "nobody waits")
		for i := range held {
			waiting := bubble.Waiting(b, b.Context(), other.Acquire)
			b.Release(held[i])
			held[i] = bubble.Granted(b, waiting)
		}
		locks.ReleaseAll(b, held)
		locks.RequireNoPermits(b)
	})
}

// The znodes are Curator's.
func TestZnodes(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s := locks.SemaphoreOf(b, b.Client(), 2, semaphore.WithID("me"), semaphore.WithName("stock"))
		held := bubble.Acquire(b, locks.Many(s, 2))
		waiting := bubble.Waiting(b, b.Context(), s.Acquire)
		require.Regexp(b, `^/permits/a/leases/_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-lease-000000000[01]$`, held[0].Path())
		require.NotEqual(b, held[0].Path(), held[1].Path())
		require.Regexp(b, `^/permits/a/locks/_c_[0-9a-f-]{36}-lock-0000000001$`, b.Queue(locks.Turns)[0])
		data, stat, found := b.Srv.Get(held[1].Path())
		require.True(b, found)
		require.Equal(b, "me", string(data))
		require.Equal(b, stat.Czxid, held[1].FencingToken())
		locks.ReleaseAll(b, held)
		b.Release(bubble.Granted(b, waiting))
	})
}

// FIFO, without overtaking: neither a try nor a smaller request overtakes a waiting larger one. A release wakes only the
// first waiter.
func TestNoRequestOvertakes(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s := locks.SemaphoreOf(b, b.Client(), 3)
		held := bubble.Acquire(b, locks.Many(s, 2))
		large := bubble.Waiting(b, b.Context(), locks.Many(locks.SemaphoreOf(b, b.Client(), 3), 3))
		other := locks.SemaphoreOf(b, b.Client(), 3)
		_, err := other.TryAcquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired, "one is free, but somebody waits for three")
		small := bubble.Waiting(b, b.Context(), other.Acquire)
		last := bubble.Waiting(b, b.Context(), locks.SemaphoreOf(b, b.Client(), 3).Acquire)
		require.Len(b, b.Queue(locks.Permits), 2, "who waits for three has none")

		log := b.Srv.Observe()
		b.Release(held[0])
		bubble.Pass(bubble.Moment)
		require.Empty(b, large)
		for _, r := range log.Requests() {
			require.NotContains(b, r.Path, "lock-", "those behind send nothing")
		}
		b.Release(held[1])
		three := bubble.Granted(b, large)
		require.Empty(b, small)
		b.Release(three[0])
		first := bubble.Granted(b, small)
		require.Empty(b, last)
		b.Release(first)
		b.Release(bubble.Granted(b, last))
		locks.ReleaseAll(b, three[1:])
		locks.RequireNoPermits(b)
	})
}

// The large request gives up. It took nothing, and those behind it go ahead.
func TestGivingUp(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s := locks.SemaphoreOf(b, b.Client(), 2)
		held := bubble.Acquire(b, s.Acquire)
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		defer cancel()
		large := bubble.Waiting(b, ctx, locks.Many(s, 2))
		behind := bubble.Waiting(b, ctx, locks.Many(locks.SemaphoreOf(b, b.Client(), 2), 2))
		small := bubble.Waiting(b, b.Context(), locks.SemaphoreOf(b, b.Client(), 2).Acquire)
		var wait *recipes.WaitError
		require.ErrorAs(b, bubble.Receive(b, large).Err, &wait)
		require.Equal(b, 1, wait.Position)
		require.ErrorAs(b, bubble.Receive(b, behind).Err, &wait)
		require.Equal(b, 2, wait.Position)
		require.Regexp(b, "^/permits/a/locks/.*-lock-", wait.Holder.Path)
		b.Release(bubble.Granted(b, small), held)
		locks.RequireNoPermits(b)
	})
}

// Curator's testGetParticipantNodes: those who hold permits.
func TestParticipants(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s, other := locks.SemaphoreOf(b, b.Client(), 2, semaphore.WithID("one")), locks.SemaphoreOf(b, b.Client(), 2, semaphore.WithID("other"))
		none, err := s.Participants(b.Context())
		require.NoError(b, err)
		require.Empty(b, none)
		first, second := bubble.Acquire(b, s.Acquire), bubble.Acquire(b, other.Acquire)
		waiting := bubble.Waiting(b, b.Context(), s.Acquire)
		b.Srv.Put(locks.Permits+"/config", nil)
		b.Srv.Put(locks.Permits+"/x-lease-0000000099", []byte("in vain"))
		all, err := s.Participants(b.Context())
		require.NoError(b, err)
		require.Len(b, all, 2)
		for i, lease := range []*recipes.Lease{first, second} {
			require.Equal(b, lease.Path(), all[i].Path)
			require.True(b, all[i].Leader)
		}
		require.Equal(b, "other", all[1].ID)
		b.Srv.Delete(locks.Permits + "/x-lease-0000000099")
		b.Release(first, second)
		b.Release(bubble.Granted(b, waiting))
	})
}

// Foreign children of leases/ do not count (Curator counts them all).
func TestForeignChildren(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s := locks.SemaphoreOf(b, b.Client(), 1)
		b.Release(bubble.Acquire(b, s.Acquire))
		for _, name := range []string{"config", "lease-", "lease-x", "x-lock-0000000000"} {
			b.Srv.Put(locks.Permits+"/"+name, nil)
		}
		b.Release(bubble.Acquire(b, s.TryAcquire))
	})
}

// A permit is never re-entered, and is released from anywhere.
func TestMutexNeverReenters(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		m, err := semaphore.NewMutex(client, locks.Semaphore)
		require.NoError(b, err)
		lease := bubble.Acquire(b, m.Acquire)
		_, err = m.TryAcquire(lease.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired)
		again := bubble.Waiting(b, context.WithoutCancel(lease.Context()), m.Acquire)
		released := make(chan error)
		go func() { released <- lease.Release() }() // joined in the next line
		require.NoError(b, <-released)
		second := bubble.Granted(b, again)
		require.Greater(b, second.FencingToken(), lease.FencingToken())
		all, err := m.Participants(b.Context())
		require.NoError(b, err)
		require.Len(b, all, 1)
		b.Release(second)
		require.NoError(b, m.Do(b.Context(), func(ctx context.Context, _ *recipes.Lease) error {
			_, err := m.TryAcquire(ctx)
			require.ErrorIs(b, err, recipes.ErrNotAcquired)
			return nil
		}))
		locks.RequireNoPermits(b)
	})
}

func TestBadInput(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		log := b.Srv.Observe()
		for name, c := range map[string]struct {
			client *recipes.Client
			path   string
			limit  int
			opts   []semaphore.Option
		}{
			"no client":                {nil, locks.Semaphore, 1, nil},
			"relative path":            {client, "a", 1, nil},
			"no permits":               {client, locks.Semaphore, 0, nil},
			"negative limit":           {client, locks.Semaphore, -1, nil},
			"limit above 31 bits":      {client, locks.Semaphore, 1 << 31, nil},
			"nil option":               {client, locks.Semaphore, 1, []semaphore.Option{nil}},
			"long id":                  {client, locks.Semaphore, 1, []semaphore.Option{semaphore.WithID(strings.Repeat("x", 64<<10+1))}},
			"empty name":               {client, locks.Semaphore, 1, []semaphore.Option{semaphore.WithName("")}},
			"empty shared limit":       {client, locks.Semaphore, 1, []semaphore.Option{semaphore.WithSharedLimit("")}},
			"relative shared limit":    {client, locks.Semaphore, 1, []semaphore.Option{semaphore.WithSharedLimit("a")}},
			"negative seed":            {client, locks.Semaphore, -1, []semaphore.Option{semaphore.WithSharedLimit(shared)}},
			"shared limit above":       {client, locks.Semaphore, 1, []semaphore.Option{semaphore.WithSharedLimit("/permits")}},
			"shared limit at the root": {client, locks.Semaphore, 1, []semaphore.Option{semaphore.WithSharedLimit("/")}},
			"shared limit is the path": {client, locks.Semaphore, 1, []semaphore.Option{semaphore.WithSharedLimit(locks.Semaphore)}},
			"shared limit below path":  {client, locks.Semaphore, 1, []semaphore.Option{semaphore.WithSharedLimit(locks.Permits)}},
			"path of a contender":      {client, "/permits/x-lock-0000000000/a", 1, nil},
			"shared limit of one":      {client, locks.Semaphore, 1, []semaphore.Option{semaphore.WithSharedLimit("/permits/x-lease-0000000000")}},
		} {
			s, err := semaphore.New(c.client, c.path, c.limit, c.opts...)
			require.ErrorIs(b, err, recipes.ErrInvalidArgument, name)
			require.ErrorContains(b, err, "semaphore: new", name)
			require.Nil(b, s, name)
		}
		_, err := semaphore.NewMutex(client, locks.Semaphore, semaphore.WithSharedLimit(shared))
		require.ErrorIs(b, err, recipes.ErrInvalidArgument)
		require.ErrorContains(b, err, "a mutex has no shared limit")
		m, err := semaphore.NewMutex(client, "relative")
		require.ErrorIs(b, err, recipes.ErrInvalidArgument)
		require.ErrorContains(b, err, "semaphore-mutex: new relative: ")
		require.Nil(b, m)
		s := locks.SemaphoreOf(b, client, 2)
		for _, n := range []int{0, -1, 3} {
			_, err := s.AcquireN(b.Context(), n)
			require.ErrorIs(b, err, recipes.ErrInvalidArgument)
			_, err = s.TryAcquireN(b.Context(), n)
			require.ErrorIs(b, err, recipes.ErrInvalidArgument)
		}
		require.ErrorIs(b, s.Do(b.Context(), nil), recipes.ErrInvalidArgument)
		for name, err := range map[string]error{
			"negative":  semaphore.SetSharedLimit(b.Context(), client, shared, -1),
			"too large": semaphore.SetSharedLimit(b.Context(), client, shared, 1<<31),
			"no client": semaphore.SetSharedLimit(b.Context(), nil, shared, 1),
			"no path":   semaphore.SetSharedLimit(b.Context(), client, "", 1),
			"contender": semaphore.SetSharedLimit(b.Context(), client, "/permits/x-lease-0000000000", 1),
		} {
			require.ErrorIs(b, err, recipes.ErrInvalidArgument, name)
			require.ErrorContains(b, err, "semaphore: set shared limit", name)
		}
		require.Empty(b, bubble.Requests(log))
	})
}

// A path that only starts like the semaphore's is beside it, not below.
func TestSharedLimitBesideThePath(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s := locks.SemaphoreOf(b, b.Client(), 3, semaphore.WithSharedLimit(locks.Semaphore+"-limit"))
		b.Release(bubble.Acquire(b, s.Acquire))
		data, _, isThere := b.Srv.Get(locks.Semaphore + "-limit")
		require.True(b, isThere)
		require.Equal(b, []byte{0, 0, 0, 3}, data)
	})
}

// The path of another lock is refused, because Curator's deprecated semaphore has its znodes there, too.
func TestOtherLayout(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		other, err := mutex.New(client, locks.Semaphore)
		require.NoError(b, err)
		held := bubble.Acquire(b, other.Acquire)
		s := locks.SemaphoreOf(b, client, 1)
		_, err = s.Acquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrOtherLayout)
		require.Equal(b, []string{held.Path()}, b.Queue(locks.Semaphore))
		b.Release(held)
		b.Release(bubble.Acquire(b, s.Acquire))
	})
}

// Permits are revocable.
func TestRevocation(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		held := bubble.Acquire(b, locks.Many(locks.SemaphoreOf(b, b.Client(), 2), 2))
		require.NoError(b, revoke.New(b.Client()).AttemptRevoke(b.Context(), held[1].Path()))
		<-held[1].Revoked()
		b.Stands(held[0], held[1])
		locks.ReleaseAll(b, held)
	})
}

// An acquisition without contention costs two writes. The turn is over with the answer to the second one, and is not read any more.
func TestRequests(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s := locks.SemaphoreOf(b, b.Client(), 2)
		b.Release(bubble.Acquire(b, s.Acquire))
		log := b.Srv.Observe()
		lease := bubble.Acquire(b, s.Acquire)
		bubble.Pass(bubble.Moment) // nothing follows
		require.ElementsMatch(b, []zktest.Op{
			zktest.OpCreate2, zktest.OpGetChildren2, // the turn
			zktest.OpGetChildren2,                 // is there room?
			zktest.OpMulti, zktest.OpGetChildren2, // the permit in exchange for the turn
			zktest.OpGetData, // the watch on the permit
		}, bubble.Operations(log))
		log = b.Srv.Observe()
		bubble.Pass(bubble.Moment)
		for _, r := range log.Requests() {
			require.Equal(b, lease.Path(), r.Path, "%v", r)
		}
		b.Release(lease)
	})
}

// A request for the lease of a waiter is seen by its permits, whether the waiter had its turn at that moment or not.
func TestRevokedWaiter(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s := locks.SemaphoreOf(b, b.Client(), 1)
		holder := bubble.Acquire(b, s.Acquire)
		next := bubble.Waiting(b, b.Context(), s.Acquire)
		last := bubble.Waiting(b, b.Context(), s.Acquire)
		bubble.Pass(time.Second)
		waiters := b.Queue(locks.Turns)
		require.Len(b, waiters, 2)
		for _, path := range waiters {
			require.NoError(b, revoke.New(b.Client()).AttemptRevoke(b.Context(), path))
		}
		bubble.Pass(time.Second)
		b.Release(holder)
		for _, waiting := range []<-chan bubble.Outcome[*recipes.Lease]{next, last} {
			lease := bubble.Granted(b, waiting)
			bubble.Pass(time.Second)
			require.True(b, bubble.IsClosed(lease.Revoked()))
			b.Release(lease)
		}
	})
}
