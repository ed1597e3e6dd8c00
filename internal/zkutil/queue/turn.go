package queue

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// recordQueue records the position in the queue, and the predecessor to wait for.
func (w *waiter) recordQueue(queue []Contender, own int) {
	if w.status != nil {
		w.status.Position, w.status.Holder, w.status.lasting = own+1, Participant{}, nil
		if own > 0 {
			w.status.Holder.Path = zkutil.Join(w.q.Dir, queue[0].Name)
		}
		w.status.recordAhead(own)
		w.q.reportStatus(*w.status)
	}
	position, blocker := w.q.positionOf(queue, own)
	w.position, w.blocker = position, ""
	if blocker >= 0 {
		w.blocker = zkutil.Join(w.q.Dir, queue[blocker].Name)
	}
}

// watchBlocker fails for a blocker that may not be read, so that the caller of an Acquire sees the error. A candidate has no such
// caller: a candidate's watch fires after a pause instead. If our turn comes when the blocker has gone, watchBlocker also watches
// the own znode, by a request right behind that for the blocker.
func (w *waiter) watchBlocker(ctx context.Context) (*session.Watch, error) {
	return session.Repeat(ctx, w.s, func() (*session.Watch, error) {
		blocker, err := w.s.StartWatch(ctx, w.blocker)
		if err != nil {
			return nil, err
		}
		if w.position.hasOnlyBlocker() && w.s.TellsEveryEvent() {
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
}

// takeTurn is called when the watch on the blocker has fired, and reports whether the waiter may proceed without another look at the
// queue. The waiter may if all of the following is known:
//
//  1. The blocker is gone: the event of its deletion has come, and not the loss of the watch. Or look finds the blocker gone when look
//     asks for the watch.
//  2. Nobody is ahead of the blocker: the look has found the blocker first (hasOnlyBlocker), or the blocker was a hold of this session
//     at the head of its queue (IsFirst). All contenders that were ahead of such a hold are gone, and later contenders have higher
//     numbers. AcquireUnder alone puts a znode ahead of others, a reader's. Queues that have to wait for readers have AlwaysList. A
//     foreign contender with a negative number comes first whenever it comes: such a contender in the list rules needsNoListing out.
//  3. Nobody between the blocker and the waiter makes the waiter wait, because the rule said so of the queue behind the blocker
//     (needsNoListing). The list of the queue was made after the waiter's own create. So everybody ahead was in the list, and contenders
//     in the list can only leave.
//  4. The own znode existed when the blocker had gone, or has gone in the same transaction. The server sends the events of two
//     transactions in order, and has not reported the deletion of the own znode before that of the blocker, or before the answer
//     that the blocker does not exist; or the own znode was read after that answer. If the own znode had gone before, a successor might
//     have been granted already.
//
// The events of a transaction that deletes both znodes come in any order. Such transactions are of three kinds:
//
//   - We close our session. The session grants nothing from before the send of that request: see wireOwner.OnCloseSession in package
//     session.
//   - The servers expire our session. Trust has ended earlier, so Session.Grant proves the session first, and the proof fails.
//   - A third party closes our session, or deletes both znodes. Then the waiter may be granted between the two events. Its hold ends
//     with the second event, which the watch on the own znode gets, as a hold does that was granted before the transaction. So the
//     waiter is no worse off than such a hold, and has no other protection than its fencing token.
//
// The own znode is watched right behind the only blocker, or was before; look asks whether the watch still stands when the answer about
// the blocker has come. Otherwise the waiter reads the own znode while the blocker is a hold of this session, unless a successor of the
// same session watches the znode already. So the waiter usually sends nothing after the deletion. Session.Grant checks which session owns
// the own znode, and that the connection is that of the latest look: another server might be behind the event of the blocker.
func (w *waiter) takeTurn(ctx context.Context) (isOurTurn bool, err error) {
	if !w.position.needsNoListing() || !w.blockerWatch.IsGone() || !w.s.TellsEveryEvent() {
		return false, nil
	}
	if w.s.IsFirst(w.blockerWatch) {
		if err := w.watchOwnNode(ctx); err != nil {
			return false, err
		}
	} else if !w.position.hasOnlyBlocker() {
		return false, nil
	}
	if !w.knowsOwnNode() {
		return false, nil
	}
	w.position = w.position.advanced()
	return true, nil
}
