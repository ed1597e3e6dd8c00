package queue

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// A watch on the own znode costs a request, and an event when the znode goes. A short wait behind several others, and
// a short hold, do without. A waiter without it does not take its turn by an event alone: it lists the queue, or
// asks as readBetween does, which shows whether its own znode is there. So a contender whose znode is gone is not granted after its successor.

// farFromTurn is how long a waiter has no watch on its own znode while its turn is far away.
const farFromTurn = 3 * time.Second

// settlingTime is how long a waiter goes on without a watch on its own znode. One whose turn comes by an event alone
// has it from the start: see watchBlocker. One that is next and may miss events soon has it, a candidate at once.
func (w *waiter) settlingTime() time.Duration {
	switch {
	case !w.isOnlyBlocker:
		return farFromTurn
	case w.q.KeepNode:
		return 0
	default:
		return session.WatchOwnAfter
	}
}

// knowsOwnNode reports whether the own znode is watched, and was not deleted.
func (w *waiter) knowsOwnNode() bool { return w.ownWatch != nil && !w.ownWatch.HasFired() }

// ownChanged returns a channel that is closed when the own znode may have changed. While that is not watched, the
// channel is closed when it has to be, because the blocker has become a hold of this session; nil stands for never.
func (w *waiter) ownChanged() (<-chan struct{}, wakeUp) {
	switch {
	case w.ownWatch != nil:
		return w.ownWatch.Fired(), byOwnNode
	case w.isNext:
		return w.s.OnFirst(w.blockerWatch), byHold
	default:
		return nil, byHold
	}
}

// watchOwnNode sets a watch on the own znode, unless there is one.
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
