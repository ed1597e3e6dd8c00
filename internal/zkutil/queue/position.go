package queue

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// turn is the event that gives a waiter its turn.
type turn int

const (
	turnAtListing    turn = iota // a listing made after the end of the blocker shows whose turn it is
	turnNear                     // the same, but the listing probably shows the waiter's turn, as no other contender was ahead
	turnAfterAll                 // the end of the blocker and of all contenders ahead of it
	turnAfterBlocker             // the end of the blocker, which is first
)

// position is the position of a waiter in its queue, by the latest list.
type position struct {
	turn     turn // meaningless without a blocker
	isBehind bool // directly behind the blocker
	isFirst  bool // no contender is ahead
}

// positionOf returns the position of the contender at index own, and the index of its blocker, or −1 if the contender may proceed.
func (q *Queue) positionOf(queue []Contender, own int) (p position, blocker int) {
	p.isFirst = own == 0
	if blocker = q.Rule(queue, own); blocker < 0 {
		return p, blocker
	}
	p.isBehind = blocker == own-1
	isOutOfOrder, _ := checkSequence(queue[0].sequence)
	isLast := q.Rule(queue[blocker+1:], own-blocker-1) < 0 // no contender behind the blocker keeps us out
	switch needsNoListing := !q.AlwaysList && !isOutOfOrder; {
	case !isLast:
		p.turn = turnAtListing
	case needsNoListing && blocker == 0:
		p.turn = turnAfterBlocker
	case needsNoListing:
		p.turn = turnAfterAll
	case blocker == 0:
		p.turn = turnNear
	}
	return p, blocker
}

// needsNoListing reports whether the waiter needs no listing once the blocker and all contenders ahead of it are deleted.
func (p position) needsNoListing() bool { return p.turn >= turnAfterAll }

// hasOnlyBlocker reports whether the waiter needs no listing once the blocker is deleted.
func (p position) hasOnlyBlocker() bool { return p.turn == turnAfterBlocker }

// isTurnNear reports whether the waiter probably has its turn once the blocker is deleted.
func (p position) isTurnNear() bool { return p.turn == turnNear || p.turn == turnAfterBlocker }

// recordQueue records the position in the queue, and the predecessor to wait for.
func (w *waiter) recordQueue(queue []Contender, own int) {
	if w.status != nil {
		w.status.Position, w.status.reason = own+1, nil
		holder := "" // path
		if own > 0 {
			holder = zkutil.Join(w.q.Dir, queue[0].Name)
		}
		if w.status.Holder.Path != holder { // otherwise the facts already read are still valid
			w.status.Holder = Participant{Path: holder}
		}
		if !w.status.wasRead { // later lists do not count
			w.status.Ahead, w.status.wasRead = own, true
		}
		w.q.reportStatus(*w.status)
	}
	if !w.mayWait {
		w.listed = queue
	}
	position, blocker := w.q.positionOf(queue, own)
	former := w.blocker
	w.isListed, w.position, w.ahead, w.blocker = true, position, own, ""
	if blocker >= 0 {
		w.blocker = zkutil.Join(w.q.Dir, queue[blocker].Name)
	}
	w.isDoubted = former != "" && (w.isDoubted || former != w.blocker)
}

// watchBlocker fails for a blocker that may not be read, so that the caller of an Acquire sees the error. A candidate has no such
// caller, so its watch fires after a pause instead. If it is our turn once the blocker is deleted, watchBlocker also watches the
// own znode, by a request right behind the one for the blocker. Each watch on a doubted blocker is doubted, also after a reconnect.
func (w *waiter) watchBlocker(ctx context.Context) (*session.Watch, error) {
	watch, err := session.Repeat(ctx, w.s, func() (*session.Watch, error) {
		blocker, err := w.s.StartWatch(ctx, w.blocker)
		if err != nil {
			return nil, err
		}
		if w.position.hasOnlyBlocker() {
			if err := w.readOwnNode(ctx); err != nil {
				blocker.Abandon()
				return nil, err
			}
		}
		if w.q.KeepNode {
			return blocker.WaitPeer(ctx)
		}
		return blocker.Wait(ctx)
	})
	if err == nil && w.isDoubted {
		w.s.Doubt(watch)
	}
	return watch, err
}
