package queue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Basket is the contenders of one call in several queues of one session, which the call acquires one after the other. The Acquire of the first
// queue creates the contenders by one transaction. If all queues are free, each later Acquire takes its contender from the basket, and sends
// nothing.
//
// # No deadlock
//
// While a contender waits, its call has no znode in a later queue:
//
//   - The lists behind the transaction show the first contender that has to wait. The znodes behind it are deleted at once.
//   - Another contender may have to wait as well, because its list is no longer valid or its znode was deleted. Then the znodes
//     behind it are deleted first. The call continues, whether or not the deletion was answered.
//
// Until such a deletion is executed, it keeps others waiting, but waits for nothing itself. So a call waits only while it holds earlier
// queues, like a call that joins its queues one by one. If all calls have one order, consider the call that waits in the last of all queues
// with a waiting call. No contender ahead of it waits in turn. TestBasketsInOneOrder explores this.
//
// # Contention
//
// TestContendedBaskets compares baskets with locks that are acquired one after the other. To go on one after the other behind the first
// contender that waits loses that gain. To list the paths that blocked the client within a second before the transaction gains 6 % with 100
// items, and loses 2 % with 1,000, so that Basket does not.
type Basket struct {
	mayWait bool // for predecessors

	mu       sync.Mutex        // protects the fields below
	rest     []*Queue          // not joined yet, in their order
	waiters  []*waiter         // not taken yet, in the order of the queues
	listedAt time.Time         // when their lists arrived
	left     []session.Leaving // the deletions of znodes that were given up
}

// basketKey is the key of a basket in a context.
type basketKey struct{}

// NewBasket returns the basket of a call that acquires queues in this order. Without queues the basket stays empty. The caller has to call
// Leave.
func NewBasket(queues []*Queue, mayWait bool) *Basket {
	return &Basket{rest: queues, mayWait: mayWait}
}

// With derives a context in which Acquire takes its contender from the basket.
func (b *Basket) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, basketKey{}, b)
}

// joinAt joins the rest of the queues if the basket is empty and q is the next. If that fails, the queues are joined one after the other.
func (b *Basket) joinAt(ctx context.Context, q *Queue) {
	b.mu.Lock()
	rest := b.rest
	isNext := len(b.waiters) == 0 && len(rest) > 0 && rest[0] == q
	b.mu.Unlock()
	if !isNext {
		return
	}
	joined := b.join(ctx, rest)
	if rest = rest[joined:]; joined == 0 {
		rest = nil
	}
	b.mu.Lock()
	b.rest = rest
	b.mu.Unlock()
}

// join joins queues of one session by one transaction, and puts those contenders into the basket, which is empty before, that may proceed,
// and the first that has to wait. joined is their number. It is 0 if the queues have to be joined one after the other, because they do
// not fit into one transaction or into the free part of the budget, or because the transaction failed. Acquire then reports the reason.
func (b *Basket) join(ctx context.Context, queues []*Queue) (joined int) {
	if !canJoinTogether(ctx, queues) {
		return 0
	}
	s, mayWait := queues[0].Session, b.mayWait
	waiters, plans := make([]*waiter, 0, len(queues)), make([]session.Planned[[]Contender], len(queues))
	endReservations := func() {
		for _, w := range waiters {
			w.reservation.End()
		}
	}
	for i, q := range queues {
		reservation, err := q.reserveAtOnce(mayWait)
		if err != nil {
			endReservations()
			return 0
		}
		w := &waiter{q: q, s: s, mayWait: mayWait, basket: b, reservation: reservation}
		if !mayWait {
			w.departures = s.NewDepartureWait()
		}
		waiters = append(waiters, w)
		plans[i] = session.Planned[[]Contender]{Dir: q.Dir, Prefix: q.Prefix, Data: q.data(), Reservation: reservation, Parse: q.parse}
	}
	created, err := session.CreateTogether(ctx, s, plans)
	if err != nil {
		endReservations()
		return 0
	}
	isExhausted := false
	for i, w := range waiters {
		isExhausted = w.setCreated(created[i]) || isExhausted
	}
	b.mu.Lock()
	b.waiters, b.listedAt = waiters, time.Now()
	b.mu.Unlock()
	if !isExhausted {
		joined = min(firstToWait(waiters)+1, len(waiters))
	}
	b.leaveFrom(joined)
	return joined
}

// canJoinTogether reports whether queues may be joined by one transaction: those of one session, in different directories, none of
// which ctx carries a hold of.
func canJoinTogether(ctx context.Context, queues []*Queue) bool {
	dirs := map[string]bool{}
	for _, q := range queues {
		if q.Session != queues[0].Session || dirs[q.Dir] || session.HoldOf(ctx, q.HoldKey()) != nil {
			return false
		}
		dirs[q.Dir] = true
	}
	return len(queues) > 1 && ctx.Err() == nil && queues[0].Session.CanCreateTogether()
}

// reserveAtOnce is Reserve without any wait, because a call that waits for the room of one queue must not keep that of another.
func (q *Queue) reserveAtOnce(mayWait bool) (*budget.Reservation, error) {
	if !mayWait {
		return q.Session.Budget().TryReserve(q.Dir, q.ZnodeBytes())
	}
	r, err := q.Session.Budget().Request(q.Dir, q.ZnodeBytes())
	if err == nil && !r.IsGiven() {
		r.End()
		return nil, zkutil.ErrNotAcquired
	}
	return r, err
}

// firstToWait returns the index of the first waiter that the list of its queue does not let proceed, or len(waiters).
func firstToWait(waiters []*waiter) int {
	i := slices.IndexFunc(waiters, func(w *waiter) bool {
		own, isListed := slices.BinarySearchFunc(w.joined, w.self, Contender.compare)
		return !isListed || w.q.Rule(w.joined, own) >= 0
	})
	if i < 0 {
		return len(waiters)
	}
	return i
}

// takeFrom returns the waiter of q in the basket that ctx carries, which has to be the next. If the basket is empty, takeFrom first joins the
// queues from q on. The result is nil if there is none. Then the caller may have to wait, and so the basket is left. The second result
// carries no basket.
func (q *Queue) takeFrom(ctx context.Context) (*waiter, context.Context) {
	b, _ := ctx.Value(basketKey{}).(*Basket)
	if b == nil {
		return nil, ctx
	}
	ctx = context.WithValue(ctx, basketKey{}, nil) // not for the context of the hold
	b.joinAt(ctx, q)
	b.mu.Lock()
	if len(b.waiters) > 0 && b.waiters[0].q == q {
		defer b.mu.Unlock()
		w := b.waiters[0]
		b.waiters = b.waiters[1:]
		if time.Since(b.listedAt) > session.WatchOwnAfter { // the grants before took long, and the znode may be deleted by now
			w.joined = nil
		}
		return w, ctx
	}
	b.mu.Unlock()
	b.Leave()
	return nil, ctx
}

// Leave gives up the contenders that were not taken, and begins to delete their znodes, by one transaction. b may be nil.
func (b *Basket) Leave() {
	if b != nil {
		b.leaveFrom(0)
	}
}

// leaveFrom is Leave for the waiters from an index on.
func (b *Basket) leaveFrom(first int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if first >= len(b.waiters) {
		return
	}
	var paths []string
	for _, w := range b.waiters[first:] {
		w.reservation.End()
		w.q.reportJoined("")
		paths = append(paths, w.path)
	}
	b.left = append(b.left, b.waiters[first].s.RemoveTogether(paths)...)
	b.waiters = b.waiters[:first]
}

// Await waits for the deletions of Leave, and returns the errors of those that continue in the background, as session.Leaving.Await does.
func (b *Basket) Await(stop <-chan struct{}) (err error) {
	b.mu.Lock()
	left := slices.Clone(b.left)
	b.mu.Unlock()
	for _, l := range left {
		err = zkutil.Both(err, l.Await(stop))
	}
	return err
}
