package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Exchange acquires n holds in exchange for a hold of another queue of the same session, by one transaction, which also deletes the znode of
// held. If held is revoked, so are the new holds. Exchange waits for no other contender. If the rule makes one of the new contenders wait, the
// error is ErrNotAcquired. After an error the caller has none of the n holds, their znodes are deleted or being deleted, and the caller has to
// leave held, which may have ended. An error that matches ErrContenderLost means that held or a new znode was lost.
//
// More contenders than fit into one transaction are created by several, the last of which deletes the znode of held.
func (q *Queue) Exchange(ctx context.Context, held *session.Entry, reservation *budget.Reservation, n int) ([]*session.Entry, error) {
	e := exchange{q: q}
	plan := session.Planned[[]Contender]{Dir: q.Dir, Prefix: q.Prefix, Data: q.data(), Reservation: reservation, Parse: q.parse}
	err := e.create(ctx, held, plan, n)
	for err == nil && len(e.waiters) > 0 {
		err = e.takeNext(ctx)
	}
	isLost := func(entry *session.Entry) bool { return !entry.Stands() && !errors.Is(entry.Loss(), zkutil.ErrMaxHold) }
	if i := slices.IndexFunc(e.entries, isLost); i >= 0 && err == nil {
		err = zkutil.ContenderLost(context.Cause(e.entries[i].Context())) //nolint:contextcheck // a hold has a context of its own
	}
	if err != nil {
		e.leave(ctx)
		return nil, err
	}
	return e.entries, nil
}

// exchange is an Exchange with its contenders.
type exchange struct {
	q        *Queue
	waiters  []*waiter        // without a hold yet
	listedAt time.Time        // when the oldest of their lists arrived, or the latest common one was requested
	entries  []*session.Entry // of the others
}

// create creates the contenders, those of the last transaction in exchange for held.
func (e *exchange) create(ctx context.Context, held *session.Entry, plan session.Planned[[]Contender], n int) error {
	s := e.q.Session
	for most := session.MaxExchange(ctx, s, plan); n > 0; {
		plans := slices.Repeat([]session.Planned[[]Contender]{plan}, min(n, most))
		var created []session.Created[[]Contender]
		var err error
		departures := s.NewDepartureWait() // before the list behind the transaction
		if n -= len(plans); n > 0 {
			created, err = session.Repeat(ctx, s, func() ([]session.Created[[]Contender], error) { return session.CreateTogether(ctx, s, plans) })
		} else {
			created, err = session.Exchange(ctx, s, held, plans)
		}
		for _, made := range created {
			w := &waiter{q: e.q, s: s, departures: departures, isRevoked: zkutil.IsClosed(held.Revoked())}
			if w.setCreated(made) {
				err = zkutil.ErrSequenceExhausted
			}
			e.waiters = append(e.waiters, w)
		}
		if err != nil {
			return err
		}
		if e.listedAt.IsZero() {
			e.listedAt = time.Now()
		}
	}
	return nil
}

// takeNext makes a hold of the next waiter. After an error, that waiter has left.
func (e *exchange) takeNext(ctx context.Context) error {
	if time.Since(e.listedAt) > session.WatchOwnAfter { // the znode may be deleted by now
		e.listAgain(ctx)
	}
	w := e.waiters[0]
	e.waiters = e.waiters[1:]
	entry, err := w.awaitHold(ctx)
	if err == nil {
		e.entries = append(e.entries, entry)
	}
	return err
}

// listAgain lists the queue for all waiters together, because a list for each of thousands would take minutes. After a failure, each
// waiter lists the queue itself.
func (e *exchange) listAgain(ctx context.Context) {
	now := e.q.Session.Snapshot()
	e.listedAt = time.Now()
	queue, err := e.q.ListContenders(ctx)
	for _, w := range e.waiters {
		w.joined = nil
		if err == nil && w.owner != 0 { // otherwise the waiter has to read its znode, too
			w.joined, w.epoch = queue, now.Epoch
		}
	}
}

// leave leaves the holds and the other contenders, and waits for the deletion of their znodes, for as long as ctx lasts. A hold that was lost
// counts as left once its znode is deleted.
func (e *exchange) leave(ctx context.Context) {
	var left []session.Leaving
	for _, entry := range e.entries {
		left = append(left, entry.EndWhole())
	}
	var paths []string
	for _, w := range e.waiters {
		paths = append(paths, w.path)
	}
	for _, l := range append(left, e.q.Session.RemoveTogether(paths)...) {
		_ = l.Await(ctx.Done())
	}
}
