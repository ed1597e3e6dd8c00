package queue

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// recordQueue asks the rule for the predecessor to wait for.
func (w *waiter) recordQueue(queue []Contender, own int) {
	if w.status != nil {
		w.status.Position, w.status.Holder = own+1, Participant{}
		if own > 0 {
			w.status.Holder.Path = zkutil.Join(w.q.Dir, queue[0].Name)
		}
		w.status.recordAhead(own)
		w.q.reportStatus(*w.status)
	}
	w.blocker, w.isNext, w.isOnlyBlocker, w.isTurnNear, w.isBehind, w.isFirst = "", false, false, false, false, own == 0
	if b := w.q.Rule(queue, own); b >= 0 {
		w.blocker = zkutil.Join(w.q.Dir, queue[b].Name)
		isOutOfOrder, _ := checkSequence(queue[0].sequence)
		isLast := w.q.Rule(queue[b+1:], own-b-1) < 0 // nobody behind the blocker keeps us out
		w.isNext = !w.q.AlwaysList && !isOutOfOrder && isLast
		w.isOnlyBlocker, w.isTurnNear, w.isBehind = w.isNext && b == 0, isLast && b == 0, b == own-1
		w.keepNear(queue, b)
	}
}

// watchBlocker fails for a blocker that may not be read, so that the caller of an Acquire learns of
// it. A candidate has no such caller: for it the watch fires after a pause instead. If our turn comes when the
// blocker has gone, the own znode is watched as well, by a request right behind that for the blocker.
func (w *waiter) watchBlocker(ctx context.Context) (*session.Watch, error) {
	return session.Repeat(ctx, w.s, func() (*session.Watch, error) {
		blocker, err := w.s.StartWatch(ctx, w.blocker)
		if err != nil {
			return nil, err
		}
		if w.isOnlyBlocker && w.s.TellsEveryEvent() {
			if err := w.readOwnNode(ctx); err != nil {
				return nil, err
			}
		}
		if w.q.KeepNode {
			return blocker.WaitPeer(ctx)
		}
		return blocker.Wait(ctx)
	})
}

// takeTurn is called when the watch on the blocker has fired. It reports whether the waiter may proceed without
// another look at the queue. The waiter may if all of this is known:
//
//  1. The blocker is gone: the event of its deletion has come, and not the loss of the watch. Or look finds it gone
//     when it asks for the watch.
//  2. Nobody is ahead of the blocker. One of three facts shows that:
//     The look has found the blocker first (isOnlyBlocker).
//     The blocker was a hold of this session that was the first of its queue (IsFirst).
//     Another contender ahead of the blocker was such a hold (LatestFirst), and since the blocker has gone the server has
//     shown that this contender and all behind it, up to the blocker, are gone (readBetween). The waiter has seen the name in
//     a list of its own queue, and the name has a uuid: so the hold was one in this queue, and not in an earlier
//     directory with the same path.
//     All contenders that were ahead of a hold that was the first are gone, and later ones have higher numbers.
//     AcquireUnder alone puts a znode ahead of others, a reader's. Queues that have to wait for readers have AlwaysList. A
//     foreign contender with a negative number comes first whenever it comes: one in the list makes isNext false.
//  3. Nobody who is between the blocker and the waiter makes the waiter wait, because the rule said so of the
//     queue behind the blocker (isNext). That queue was listed after the waiter's own create. So everybody who is
//     ahead was in it, and from there they can only go.
//  4. The own znode was there when the blocker had gone. The server tells every event in order, and has not told of
//     the deletion of the own znode before that of the blocker, or before the answer that there is no blocker; or
//     the own znode was read after that; readBetween reads it behind those of all who were ahead. If it were gone, a
//     successor might have been granted already.
//
// The own znode is watched right behind the only blocker, or was before; look asks whether its watch stands when the
// answer about the blocker has come. Else it is read when the blocker has become a hold of this session, while it is
// held, unless a successor of the same session watches it already. So mostly nothing is sent after the deletion.
// Session.Grant checks which session owns the own znode, and that the connection is that of the latest look: another
// server might be behind what the event of the blocker has reported.
func (w *waiter) takeTurn(ctx context.Context) (isOurTurn bool, err error) {
	if !w.isNext || !w.blockerWatch.IsGone() || !w.s.TellsEveryEvent() {
		return false, nil
	}
	switch {
	case w.s.IsFirst(w.blockerWatch):
		if err := w.watchOwnNode(ctx); err != nil {
			return false, err
		}
		isOurTurn = w.knowsOwnNode()
	case w.isOnlyBlocker:
		isOurTurn = w.knowsOwnNode()
	default:
		isOurTurn = w.readBetween(ctx)
	}
	w.isFirst = isOurTurn && w.isBehind
	return isOurTurn, nil
}
