package queue

// step is what a waiter does next.
type step int

const (
	stepList       step = iota // list the queue, with a read of the own znode if that may have changed
	stepRefuse                 // end the attempt of a waiter that may not wait, unless the blocker is leaving
	stepWatch                  // watch the blocker; if it is the only one, read and watch the own znode as well
	stepWatchAgain             // watch the blocker on another connection, where the end of the blocker requires a list
	stepReadOwn                // read and watch the own znode
	stepWait                   // wait until something changes
	stepClaim                  // ask the session for the hold
)

// seen is what a waiter knows of a znode.
type seen int

const (
	unwatched seen = iota
	standing       // the watch did not fire, so the znode exists as far as its server reported
	gone           // an event reported its deletion, or a read did not find it
	changed        // its watch fired for another reason, or was lost with the connection
)

// sight is what a waiter knows when it chooses its next step. The choice has no other input. The facts are read one after the other, so
// something may change in between. If that made a claim wrong, Session.Grant refuses the claim, and waiter.await returns at once
// if it made a wait wrong.
type sight struct {
	isListed      bool     // a list was made, and neither a stale claim nor the end of a departure requires another
	position      position // by the latest list
	hasBlocker    bool     // by the latest list
	mayWait       bool     // for a blocker
	isOver        bool     // the session of the own znode is not the present one
	isReconnected bool     // the connection is not that of the list, or of the latest stepWatchAgain
	blocker       seen
	wasFirst      bool // the blocker was a hold of this session, and the first of its queue
	own           seen
}

// next chooses the step. All waiters of a lock reconnect at once when a server stops. If each listed the queue then, the lists together
// would grow with the square of the queue. So waiters that are not next list it only once their blocker is deleted (stepWatchAgain).
//
// The waiter claims its turn after a list without a blocker, or if all of the following is known:
//
//  1. The blocker is deleted. The watch reported its deletion and not the loss of the watch, or there was no such znode when the waiter
//     asked for the watch.
//  2. No contender is ahead of the blocker. The list had the blocker first (hasOnlyBlocker), or the blocker was a hold of this
//     session at the head of its queue (wasFirst). All contenders ahead of such a hold are deleted, and later contenders have higher
//     numbers. Only AcquireUnder puts a znode, of a reader, ahead of others. Queues that have to wait for readers have AlwaysList. A
//     foreign contender with a negative number is first whenever it joins. If the list has such a contender, needsNoListing is
//     false.
//  3. No contender between the blocker and the waiter makes the waiter wait, because the rule names the nearest that does. The list of the
//     queue was made after the waiter's own create. So it had all contenders ahead, and these can only leave.
//  4. Our znode outlived the blocker's, or the same transaction deleted both. The server sends the events of two transactions in order,
//     and did not report the deletion of the own znode before that of the blocker, or before the answer that the blocker does not
//     exist; or the own znode was read after that event or answer. If the own znode was deleted earlier, a successor might already hold.
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
// The own znode is watched right behind the only blocker, or was before. Otherwise the waiter reads the own znode while the blocker is a
// hold of this session, unless a successor of the same session watches the znode already. So the waiter usually sends nothing after the
// deletion. Session.Grant checks which session owns the own znode, and that the connection is that of the latest list, because another
// server might be behind the event of the blocker.
func (s sight) next() step {
	switch {
	case !s.isListed, s.isOver:
		return stepList
	case !s.hasBlocker:
		return stepClaim
	case !s.mayWait:
		return stepRefuse
	case s.blocker == unwatched:
		return stepWatch
	case s.isReconnected && s.blocker != gone && !s.position.isTurnNear():
		return stepWatchAgain
	case s.isReconnected, s.blocker == changed:
		return stepList
	case s.blocker == gone:
		return s.afterBlocker()
	case s.own == gone, s.own == changed:
		return stepList
	case s.own == unwatched && s.position.needsNoListing() && s.wasFirst:
		return stepReadOwn
	default:
		return stepWait
	}
}

// afterBlocker chooses the step after the end of the blocker.
func (s sight) afterBlocker() step {
	switch isKnownFirst := s.position.hasOnlyBlocker() || s.wasFirst; {
	case !s.position.needsNoListing() || !isKnownFirst:
		return stepList
	case s.own == unwatched && s.wasFirst:
		return stepReadOwn
	case s.own == standing:
		return stepClaim
	default:
		return stepList
	}
}

// isFirst reports whether no contender is ahead of a waiter that claims its turn.
func (s sight) isFirst() bool {
	if s.hasBlocker {
		return s.position.isBehind
	}
	return s.position.isFirst
}
