package queue

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// A watch on the own znode costs a request, and an event when the znode goes. A short wait behind several contenders and a short
// hold do without the watch. A waiter without the watch does not take its turn by an event alone: the waiter lists the queue,
// which shows whether the own znode still exists. So a contender whose znode is gone is not granted after its successor.

// farFromTurn is how long a waiter has no watch on its own znode while its turn is far away.
const farFromTurn = 3 * time.Second

// settlingTime returns for how long a waiter goes on without a watch on its own znode. A waiter whose turn comes by an event
// alone sets the watch at the start: see watchBlocker. A waiter that is next and may miss events sets the watch soon, a candidate
// immediately.
func (w *waiter) settlingTime() time.Duration {
	switch {
	case !w.position.hasOnlyBlocker():
		return farFromTurn
	case w.q.KeepNode:
		return 0
	default:
		return session.WatchOwnAfter
	}
}

// knowsOwnNode reports whether the own znode is watched, and was not deleted.
func (w *waiter) knowsOwnNode() bool { return w.ownWatch != nil && !w.ownWatch.HasFired() }

// ownChanged returns a channel that is closed when the own znode may have changed. While the own znode is not watched, the
// channel is closed when the znode has to be watched, because the blocker has become a hold of this session. A nil channel is
// never closed.
func (w *waiter) ownChanged() (<-chan struct{}, wakeUp) {
	switch {
	case w.ownWatch != nil:
		return w.ownWatch.Fired(), byOwnNode
	case w.position.needsNoListing():
		return w.s.OnFirst(w.blockerWatch), byHold
	default:
		return nil, byHold
	}
}

// watchOwnNode sets a watch on the own znode, unless the znode is watched.
func (w *waiter) watchOwnNode(ctx context.Context) error {
	if w.ownWatch != nil {
		return nil
	}
	// A successor in the same session may have read and watched the znode already. Then nothing has changed since.
	if watch := w.s.StandingWatch(w.path); watch != nil && w.owner != 0 && w.s.TellsEveryEvent() {
		w.ownWatch, w.isRevoked = watch, w.isRevoked || string(watch.Node().Data) == session.Revocation
		return nil
	}
	return w.s.RunShortTask(ctx, func(ctx context.Context) error {
		_, err := session.Repeat(ctx, w.s, func() (struct{}, error) { return struct{}{}, w.readOwnNode(ctx) })
		return err
	})
}

// readOwnNode reads and watches the own znode, unless it is watched.
func (w *waiter) readOwnNode(ctx context.Context) error {
	if w.knowsOwnNode() {
		return nil
	}
	ownRead, err := w.s.StartReadOwn(ctx, w.path)
	if err != nil {
		return err
	}
	if err = w.recordOwnNode(ctx, ownRead); errors.Is(err, zk.ErrNoNode) {
		return zkutil.ContenderLost(zkutil.ErrNodeDeleted)
	}
	return err
}
