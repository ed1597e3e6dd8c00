package permits_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A released permit wakes the first waiter, which passes its turn on to the second. The others send nothing and get no event
// (Redisson 5762, 3573, 1104: lost wake-ups, and a herd).
func TestReleaseWakesTheFirst(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		held := bubble.Acquire(b, locks.SemaphoreOf(b, b.Client(recipes.WithSessionTimeout(time.Hour)), 1).Acquire)
		var clients []*recipes.Client
		var waiting []<-chan bubble.Outcome[*recipes.Lease]
		for range 6 {
			client := b.Client(recipes.WithSessionTimeout(time.Hour))
			clients = append(clients, client)
			waiting = append(waiting, bubble.Waiting(b, b.Context(), locks.SemaphoreOf(b, client, 1).Acquire))
		}
		bubble.Pass(4 * time.Second) // all watch their own znodes now
		log := b.Srv.Observe()
		b.Release(held)
		lease := bubble.Granted(b, waiting[0])
		bubble.Pass(time.Second)
		awake := map[int64]bool{}
		for _, r := range log.Requests() {
			awake[r.Session] = true
		}
		for i, client := range clients {
			require.Equal(b, i < 2, awake[client.Conn().SessionID()], "client %d", i)
			require.Empty(b, waiting[i])
		}
		b.Release(lease)
		for _, next := range waiting[1:] {
			b.Release(bubble.Granted(b, next))
		}
		locks.RequireNoPermits(b)
	})
}

// While one request waits for its turn, others acquire and release permits, wait and give up. It sends nothing
// meanwhile.
func TestWaiterIsLeftInPeace(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s := locks.SemaphoreOf(b, b.Client(recipes.WithSessionTimeout(time.Hour)), 3)
		one, two := bubble.Acquire(b, s.Acquire), bubble.Acquire(b, s.Acquire)
		all := bubble.Waiting(b, b.Context(), locks.Many(locks.SemaphoreOf(b, b.Client(recipes.WithSessionTimeout(time.Hour)), 3), 3))
		client := b.Client(recipes.WithSessionTimeout(time.Hour))
		waiting := bubble.Waiting(b, b.Context(), locks.SemaphoreOf(b, client, 3).Acquire)
		bubble.Pass(4 * time.Second) // it watches its own znode now
		log := b.Srv.Observe()
		b.Release(one) // not enough for the one ahead
		_, err := s.TryAcquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired)
		bubble.Pass(time.Second)
		require.Empty(b, all)
		for _, r := range log.Requests() {
			require.NotEqual(b, client.Conn().SessionID(), r.Session, "%v", r)
		}
		b.Release(two)
		locks.ReleaseAll(b, bubble.Granted(b, all))
		b.Release(bubble.Granted(b, waiting))
		locks.RequireNoPermits(b)
	})
}

// The next request to be served names the holder of the first permit. That costs one read, and none in a wait of less
// than a second.
func TestHolderInTheWaitErrorOfTheNext(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		held := bubble.Acquire(b, locks.SemaphoreOf(b, b.Client(), 1, semaphore.WithID("web 1")).Acquire)
		since := time.Now()
		client := b.Client(recipes.WithSessionTimeout(time.Hour), recipes.WithSlowWait(0))
		waitError := func(patience time.Duration) *recipes.WaitError {
			ctx, cancel := context.WithTimeout(b.Context(), patience)
			defer cancel()
			_, err := locks.SemaphoreOf(b, client, 1).Acquire(ctx)
			wait, ok := zkutil.AsType[*recipes.WaitError](err)
			require.True(b, ok, "%v", err)
			require.Equal(b, 1, wait.Position)
			return wait
		}
		short := waitError(time.Second - time.Millisecond)
		require.Equal(b, recipes.Participant{Path: held.Path(), Leader: true}, short.Holder)

		log := b.Srv.Observe()
		long := waitError(time.Minute)
		require.WithinDuration(b, since, long.Holder.Since, 0)
		since = long.Holder.Since // in its time zone
		require.Equal(b, recipes.Participant{ID: "web 1", Path: held.Path(), Leader: true, Token: held.FencingToken(), Since: since}, long.Holder)
		require.EqualError(b, long, `not acquired after 1m0s in position 1, behind "web 1" at `+held.Path()+": context deadline exceeded")
		reads := 0
		for _, r := range log.Requests() {
			if r.Path == held.Path() && r.Session == client.Conn().SessionID() {
				reads++
			}
		}
		require.Equal(b, 1, reads)
		b.Release(held)
	})
}

// A permit is released while the waiter has no connection. The waiter notices after the reconnect.
func TestNoLostWakeUp(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		held := bubble.Acquire(b, locks.SemaphoreOf(b, b.Client(), 1).Acquire)
		waiting := bubble.Waiting(b, b.Context(), locks.SemaphoreOf(b, b.Troubled(recipes.WithSessionTimeout(time.Minute)), 1).Acquire)
		over := b.Outage()
		b.Release(held)
		over()
		b.Release(bubble.Granted(b, waiting))
	})
	// Between the look at the permits and the watch.
	bubble.Run(t, func(b *bubble.Bubble) {
		held := bubble.Acquire(b, locks.SemaphoreOf(b, b.Client(), 1).Acquire)
		client, looks := b.Client(), 0
		b.Srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Session == client.Conn().SessionID() && r.Op == zktest.OpGetChildren2 && strings.HasPrefix(r.Path, locks.Permits) {
				if looks++; looks == 2 {
					b.Srv.Delete(held.Path())
				}
			}
			return zktest.Fault{}
		})
		start := time.Now()
		lease := bubble.Acquire(b, locks.SemaphoreOf(b, client, 1).Acquire)
		require.GreaterOrEqual(b, looks, 2)
		require.Equal(b, start, time.Now(), "not when something else happens")
		b.Release(lease)
		<-held.Context().Done() // its own event may follow the waiter's
		require.ErrorIs(b, held.Release(), recipes.ErrNodeDeleted)
	})
}

// While a call waits for a server that does not answer, other calls on the same semaphore end with their contexts. In
// CURATOR-495, a lock is held during the retries.
func TestCallsDoNotWaitForEachOther(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s := locks.SemaphoreOf(b, b.Client(recipes.WithSessionTimeout(time.Hour)), 2)
		b.Release(bubble.Acquire(b, s.Acquire))
		stop := b.Srv.Inject(func(zktest.Request) zktest.Fault { return zktest.Fault{Delay: time.Minute} })
		slow := bubble.Start(b.Context(), s.Acquire)
		bubble.Pass(time.Second)
		const patience = 10 * time.Millisecond
		for name, call := range map[string]func(context.Context) error{
			"acquire":      func(ctx context.Context) error { _, err := s.Acquire(ctx); return err },
			"try":          func(ctx context.Context) error { _, err := s.TryAcquireN(ctx, 2); return err },
			"participants": func(ctx context.Context) error { _, err := s.Participants(ctx); return err },
		} {
			ctx, cancel := context.WithTimeout(b.Context(), patience)
			start := time.Now()
			require.ErrorIs(b, call(ctx), context.DeadlineExceeded, name)
			require.Equal(b, patience, time.Since(start), name)
			cancel()
		}
		require.Empty(b, slow)
		stop()
		b.Release(bubble.Receive(b, slow).Lease)
	})
}

// After more than a second, a waiter knows the ID of the first holder, for any number of wake-ups.
func TestHolderIsKnownAmongReleases(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		holder := locks.SemaphoreOf(b, b.Client(), 5, semaphore.WithID("holder"))
		var held []*recipes.Lease // in the order of their znodes
		for range 5 {
			held = append(held, bubble.Acquire(b, holder.Acquire))
		}
		ctx, cancel := context.WithTimeout(b.Context(), 3*time.Second)
		defer cancel()
		waiting := bubble.Waiting(b, ctx, locks.Many(locks.SemaphoreOf(b, b.Client(), 5), 5))
		for _, i := range []int{4, 3, 2} {
			bubble.Pass(800 * time.Millisecond)
			b.Release(held[i])
		}
		got := <-waiting
		var wait *recipes.WaitError
		require.ErrorAs(b, got.Err, &wait)
		require.Equal(b, 1, wait.Position)
		require.Equal(b, held[0].Path(), wait.Holder.Path)
		require.Equal(b, "holder", wait.Holder.ID)
	})
}

// A permit that is not ephemeral is never released.
func TestWaitForAPermitThatIsNotEphemeral(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		const lasting = locks.Permits + "/lease-0000000000"
		b.Srv.Put(lasting, []byte("by hand"))
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		defer cancel()
		_, err := locks.SemaphoreOf(b, b.Client(), 1).Acquire(ctx)
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.ErrorIs(b, err, recipes.ErrNotEphemeral)
		require.ErrorContains(b, err, lasting)
		wait, _ := zkutil.AsType[*recipes.WaitError](err)
		require.True(b, wait.Holder.NotEphemeral)
		b.Srv.Delete(lasting)
		b.Release(bubble.Acquire(b, locks.SemaphoreOf(b, b.Client(), 1).Acquire))
	})
}

// The first permit changes while a request waits. Its WaitError has the one that is first at the end, and nothing of the
// others.
func TestHolderOfAWaitErrorIsThePresentOne(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		first := bubble.Acquire(b, locks.SemaphoreOf(b, b.Client(), 2, semaphore.WithID("first")).Acquire)
		second := bubble.Acquire(b, locks.SemaphoreOf(b, b.Client(), 2, semaphore.WithID("second")).Acquire)
		ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
		defer cancel()
		waiting := bubble.Waiting(b, ctx, locks.Many(locks.SemaphoreOf(b, b.Client(), 2), 2))
		bubble.Pass(5 * time.Second) // the first permit was read
		b.Release(first)
		bubble.Pass(6 * time.Second)
		wait, ok := zkutil.AsType[*recipes.WaitError]((<-waiting).Err)
		require.True(b, ok)
		require.Equal(b, second.Path(), wait.Holder.Path)
		require.Equal(b, "second", wait.Holder.ID)
		b.Release(second)
	})
}
