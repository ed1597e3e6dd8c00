package queue

import (
	"context"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Exchange acquires n holds in exchange for a hold of another queue of the same session, by one transaction, which also deletes the znode of
// held. Exchange waits for no other contender. If the rule makes one of the new contenders wait, the error is ErrNotAcquired. After an error
// the caller has none of the n holds, their znodes are deleted or being deleted, and the caller has to leave held, which may have ended. An
// error that matches ErrContenderLost means that held or a new znode was lost.
//
// More contenders than fit into one transaction are created by several, the last of which deletes the znode of held.
func (q *Queue) Exchange(ctx context.Context, held *session.Entry, reservation *budget.Reservation, n int) ([]*session.Entry, error) {
	e := exchange{q: q}
	plan := session.Planned[[]Contender]{Dir: q.Dir, Prefix: q.Prefix, Data: q.data(), Reservation: reservation, Parse: q.parse}
	err := e.create(ctx, held, plan, n)
	for _, w := range e.waiters {
		if err == nil {
			err = e.take(ctx, w)
		}
	}
	if i := slices.IndexFunc(e.entries, func(entry *session.Entry) bool { return !entry.Stands() }); i >= 0 && err == nil {
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
	waiters  []*waiter
	listedAt time.Time        // when the earliest list in use arrived
	entries  []*session.Entry // of the first waiters
}

// create creates the contenders, the latest of them in exchange for held.
func (e *exchange) create(ctx context.Context, held *session.Entry, plan session.Planned[[]Contender], n int) error {
	s := e.q.Session
	for most := session.MaxExchange(ctx, s, plan); n > 0; {
		plans := slices.Repeat([]session.Planned[[]Contender]{plan}, min(n, most))
		var created []session.Created[[]Contender]
		var err error
		if n -= len(plans); n > 0 {
			created, err = session.CreateTogether(ctx, s, plans)
		} else {
			created, err = session.Exchange(ctx, s, held, plans)
		}
		for _, made := range created {
			w := &waiter{q: e.q, s: s, departures: s.NewDepartureWait()}
			if w.setCreated(made) {
				err = zkutil.ErrSequenceExhausted
			}
			e.waiters = append(e.waiters, w)
		}
		if zkutil.IsTransient(err) && n > 0 {
			err = zkutil.ContenderLost(err) // CreateTogether tries once
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

// take makes a hold of the next waiter.
func (e *exchange) take(ctx context.Context, w *waiter) error {
	if w.joined != nil && time.Since(e.listedAt) > session.WatchOwnAfter { // the grants before took long, and a znode may be deleted by now
		list, err := session.Repeat(ctx, e.q.Session, func() ([]Contender, error) { return e.q.ListContenders(ctx) })
		if err != nil {
			return err
		}
		for _, left := range e.waiters[len(e.entries):] {
			left.joined = list
		}
		e.listedAt = time.Now()
	}
	entry, err := w.awaitHold(ctx)
	if err != nil {
		e.waiters = slices.DeleteFunc(e.waiters, func(other *waiter) bool { return other == w }) // it has left
		return err
	}
	e.entries = append(e.entries, entry)
	return nil
}

// leave leaves the holds and the other contenders, and waits for the deletion of their znodes, for as long as ctx lasts. A hold that was lost
// counts as left once its znode is deleted.
func (e *exchange) leave(ctx context.Context) {
	var left []session.Leaving
	for _, entry := range e.entries {
		left = append(left, entry.EndWhole())
	}
	var paths []string
	for _, w := range e.waiters[len(e.entries):] {
		paths = append(paths, w.path)
	}
	for _, l := range append(left, e.q.Session.RemoveTogether(paths)...) {
		_ = l.Await(ctx.Done())
	}
}
