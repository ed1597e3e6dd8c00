package queue

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// A watch on the own znode costs a request, and an event when the znode is deleted. A short wait behind several contenders and a
// short hold do without the watch. A waiter without the watch does not take its turn by an event alone. It lists the queue,
// which shows whether its own znode still exists. So a contender whose znode was deleted is not granted after its successor.

// farFromTurn is how long a waiter has no watch on its own znode. A waiter with only its blocker ahead sets the watch at the start, in
// watchBlocker.
const farFromTurn = 3 * time.Second

// knowsOwnNode reports whether the own znode is watched, and was not deleted.
func (w *waiter) knowsOwnNode() bool { return w.ownWatch != nil && !w.ownWatch.HasFired() }

// ownChanged returns a channel that is closed when the own znode may have changed. If the znode is not watched, the second channel is
// closed when it has to be watched, because the blocker is now a hold of this session. A nil channel is never closed.
func (w *waiter) ownChanged() (changed, heldHere <-chan struct{}) {
	switch {
	case w.ownWatch != nil:
		return w.ownWatch.Fired(), nil
	case w.position.needsNoListing():
		return nil, w.s.OnFirst(w.blockerWatch)
	default:
		return nil, nil
	}
}

// watchOwnNode sets a watch on the own znode, unless the znode is watched.
func (w *waiter) watchOwnNode(ctx context.Context) error {
	if w.ownWatch != nil {
		return nil
	}
	// If a successor in the same session already watches the znode, the znode is unchanged since that read.
	if watch := w.s.StandingWatch(w.path); watch != nil && w.owner != 0 {
		w.ownWatch, w.isRevoked = watch, w.isRevoked || session.IsRevocation(watch.Node().Data)
		return nil
	}
	_, err := session.Repeat(ctx, w.s, func() (struct{}, error) { return struct{}{}, w.readOwnNode(ctx) })
	return err
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
