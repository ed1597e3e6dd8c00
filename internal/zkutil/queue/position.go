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

// position is the position of a waiter in its queue, from the latest look.
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

// advanced returns the position of a waiter that has its turn without a listing.
func (p position) advanced() position {
	p.isFirst = p.isBehind
	return p
}

// sight has the facts that decide whether a waiter has its turn without another look at the queue (see takeTurn).
type sight struct {
	position      position // at the latest look
	isBlockerGone bool     // an event reported its deletion, or a read did not find it
	wasFirst      bool     // the blocker was a hold of this session, and the first of its queue
	knowsOwn      bool     // the own znode was read, is watched, and no event arrived since
}

// comesByEvent reports whether the end of the blocker ends the wait, if the own znode existed then (conditions 1 to 3 of
// takeTurn).
func (s sight) comesByEvent() bool {
	return s.isBlockerGone && s.position.needsNoListing() && (s.position.hasOnlyBlocker() || s.wasFirst)
}

// isTurn reports whether the waiter may proceed.
func (s sight) isTurn() bool { return s.comesByEvent() && s.knowsOwn }

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
		if !w.status.wasRead { // later looks do not count
			w.status.Ahead, w.status.wasRead = own, true
		}
		w.q.reportStatus(*w.status)
	}
	if !w.mayWait {
		w.listed = queue
	}
	position, blocker := w.q.positionOf(queue, own)
	former := w.blocker
	w.position, w.ahead, w.blocker = position, own, ""
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

// takeTurn is called after the watch on the blocker fired, and reports whether the waiter may proceed without another look at the
// queue. The waiter may if all of the following is known:
//
//  1. The blocker is deleted. The watch reported its deletion and not the loss of the watch, or look found no such znode when
//     it asked for the watch.
//  2. No contender is ahead of the blocker. The look found the blocker first (hasOnlyBlocker), or the blocker was a hold of this
//     session at the head of its queue (IsFirst). All contenders ahead of such a hold are deleted, and later contenders have higher
//     numbers. Only AcquireUnder puts a znode, of a reader, ahead of others. Queues that have to wait for readers have AlwaysList. A
//     foreign contender with a negative number is first whenever it joins. If the list has such a contender, needsNoListing is
//     false.
//  3. No contender between the blocker and the waiter makes the waiter wait, because the rule said so of the queue behind the blocker
//     (needsNoListing). The list of the queue was made after the waiter's own create. So it had all contenders ahead, and these can only
//     leave.
//  4. Our znode outlived the blocker's, or the same transaction deleted both. The server sends the events of two transactions in order,
//     and did not report the deletion of the own znode before that of the blocker, or before the answer that the blocker does not
//     exist; or the own znode was read after that answer. If the own znode was deleted earlier, a successor might already hold.
//
// The events of a transaction that deletes both znodes arrive in any order. Such transactions are of three kinds:
//
//   - We close our session. The session grants nothing once it is about to send that request (wireOwner.OnCloseSession in package
//     session).
//   - The servers expire our session. Trust ended earlier, so Session.Grant proves the session first, and the proof fails.
//   - A third party closes our session, or deletes both znodes. Then the waiter may be granted between the two events. Its hold ends
//     with the second event, which the watch on the own znode gets, like a hold granted before the transaction. So the waiter is no
//     worse off than such a hold, and has no other protection than its fencing token.
//
// The own znode is watched right behind the only blocker, or was before; look checks that watch after the answer about the blocker.
// Otherwise the waiter reads the own znode while the blocker is a hold of this session, unless a successor of the same session watches
// the znode already. So the waiter usually sends nothing after the deletion. Session.Grant checks which session owns the own znode, and
// that the connection is that of the latest look: another server might be behind the event of the blocker.
func (w *waiter) takeTurn(ctx context.Context) (isOurTurn bool, err error) {
	if s := w.sight(); !s.comesByEvent() {
		return false, nil
	} else if s.wasFirst {
		if err := w.watchOwnNode(ctx); err != nil {
			return false, err
		}
	}
	if !w.sight().isTurn() {
		return false, nil
	}
	w.position = w.position.advanced()
	return true, nil
}

// sight returns what the waiter knows of its blocker and of its own znode.
func (w *waiter) sight() sight {
	return sight{
		position: w.position, isBlockerGone: w.blockerWatch.IsGone(), wasFirst: w.s.IsFirst(w.blockerWatch), knowsOwn: w.knowsOwnNode(),
	}
}
