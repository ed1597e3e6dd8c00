package queue

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// waiter is one znode of ours in a queue, and what was last read of the znode and of the queue.
// One goroutine uses it. The context of that goroutine ends with the session: see
// Session.WhileOpen.
type waiter struct {
	q    *Queue
	s    *session.Session
	path string
	self Contender

	epoch     uint64         // of the connection when the queue was last read
	owner     int64          // session of the own znode; 0: not read yet
	token     int64          // czxid of the own znode
	ownWatch  *session.Watch // on the own znode
	isRevoked bool           // a peer has asked for the lease
	twins     []Contender    // other znodes with our uuid, which are being deleted

	blocker       string // path of the predecessor to wait for, as the rule decides; "": none
	isOnlyBlocker bool   // our turn comes when the blocker has gone

	status *WaitStatus // nil: nobody asks for it
}

// newWaiter returns the waiter of a znode of ours that was not read yet.
func (q *Queue) newWaiter(path string) *waiter {
	_, name := zkutil.Split(path)
	sequence, _ := sequenceOf(name, q.Markers)
	return &waiter{q: q, s: q.Session, path: path, self: Contender{name, sequence}}
}

// awaitHold waits until the znode becomes a hold. After an error it has left the queue.
func (w *waiter) awaitHold(ctx context.Context, mayWait bool) (*session.Entry, error) {
	w.q.reportJoined(w.path)
	entry, err := w.awaitTurn(ctx, mayWait)
	if err != nil {
		w.q.reportJoined("")
		w.leaveQueue(ctx, err)
	}
	return entry, err
}

// awaitTurn blocks until the rule lets the waiter proceed, and makes its znode a hold. It returns
// ErrNotAcquired if it would have to wait and may not.
func (w *waiter) awaitTurn(ctx context.Context, mayWait bool) (*session.Entry, error) {
	for {
		if err := w.s.RunShortTask(ctx, func() error { return w.refresh(ctx) }); err != nil {
			return nil, err
		}
		if w.blocker != "" {
			if !mayWait {
				return nil, zkutil.ErrNotAcquired
			}
			if isOurTurn, err := w.awaitBlocker(ctx); err != nil {
				return nil, err
			} else if !isOurTurn {
				continue
			}
		}
		entry, err := w.claimHold(ctx)
		if !errors.Is(err, zkutil.ErrStale) {
			return entry, err
		}
	}
}

// refresh reads the queue, and the own znode if that may have changed.
func (w *waiter) refresh(ctx context.Context) error {
	_, err := session.Repeat(ctx, w.s, func() (struct{}, error) { return struct{}{}, w.refreshOnce(ctx) })
	return err
}

func (w *waiter) refreshOnce(ctx context.Context) error {
	now := w.s.Snapshot()
	if w.owner != 0 && w.owner != now.ID {
		return zkutil.ContenderLost(zkutil.ErrSessionLost)
	}
	queue, err := w.readNodeAndQueue(ctx, now.Epoch)
	if errors.Is(err, zk.ErrNoNode) {
		return zkutil.ContenderLost(zkutil.ErrNodeDeleted)
	}
	if err != nil {
		return err
	}
	w.epoch = now.Epoch
	queue = w.withoutTwins(ctx, queue)
	own, isListed := slices.BinarySearchFunc(queue, w.self, Contender.compare)
	if !isListed {
		return zkutil.ContenderLost(zkutil.ErrNodeDeleted)
	}
	w.recordQueue(queue, own)
	return nil
}

// readNodeAndQueue sends both requests before it waits for an answer. The own znode is read again
// only if its watch has fired or was set on another connection, because it is unchanged otherwise.
func (w *waiter) readNodeAndQueue(ctx context.Context, epoch uint64) ([]Contender, error) {
	var ownRead *session.OwnRead
	if w.ownWatch == nil || w.epoch != epoch || w.ownWatch.HasFired() {
		var err error
		if ownRead, err = w.s.StartReadOwn(ctx, w.path); err != nil {
			return nil, err
		}
	}
	queue, err := w.q.listContenders(ctx)
	if ownRead != nil {
		if err := w.recordOwnNode(ctx, ownRead); err != nil {
			return nil, err
		}
	}
	return queue, err
}

// recordOwnNode takes the token, the owner, and a revocation that has come already from one read,
// which also sets the watch for a deletion and a later revocation: so nothing between is missed.
func (w *waiter) recordOwnNode(ctx context.Context, ownRead *session.OwnRead) error {
	n, watch, err := ownRead.Wait(ctx)
	if err != nil {
		return err
	}
	w.ownWatch, w.owner, w.token = watch, n.Stat.EphemeralOwner, n.Stat.Czxid
	w.isRevoked = w.isRevoked || string(n.Data) == session.Revocation
	return nil
}

// recordQueue asks the rule for the predecessor to wait for.
func (w *waiter) recordQueue(queue []Contender, own int) {
	if w.status != nil {
		*w.status = WaitStatus{own + 1, Participant{Path: zkutil.Join(w.q.Dir, queue[0].Name)}}
	}
	w.blocker, w.isOnlyBlocker = "", false
	if b := w.q.Rule(queue, own); b >= 0 {
		w.blocker = zkutil.Join(w.q.Dir, queue[b].Name)
		w.isOnlyBlocker = b == 0 && w.q.Rule(queue[1:], own-1) < 0
	}
}

// withoutTwins returns the queue without the other znodes that carry our uuid, and has those
// deleted. They come from a create that the server has executed twice. A waiter that waited for
// its own twin would wait forever.
func (w *waiter) withoutTwins(ctx context.Context, queue []Contender) []Contender {
	uuid := session.ProtectionOf(w.self.Name)
	isTwin := func(c Contender) bool { return uuid != "" && c != w.self && session.ProtectionOf(c.Name) == uuid }
	if !slices.ContainsFunc(queue, isTwin) {
		return queue
	}
	others := make([]Contender, 0, len(queue)) // a copy, because the listing is shared
	for _, c := range queue {
		switch {
		case !isTwin(c):
			others = append(others, c)
		case !slices.Contains(w.twins, c):
			w.twins = append(w.twins, c)
			path := zkutil.Join(w.q.Dir, c.Name)
			w.s.Log(slog.LevelWarn, "one create has made two znodes: deleting the other", "znode", path)
			w.s.RemoveLater(ctx, path)
		}
	}
	return others
}

// awaitBlocker blocks until the blocker or the own znode may have changed, or the connection has.
// isOurTurn says that no other look at the queue is needed: the only blocker is gone, and the
// server, which tells every event in order, has not told of a deletion of the own znode before.
func (w *waiter) awaitBlocker(ctx context.Context) (isOurTurn bool, err error) {
	var watch *session.Watch
	err = w.s.RunShortTask(ctx, func() (err error) {
		watch, err = w.watchBlocker(ctx)
		return err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if w.status != nil && w.status.Holder.Path == w.blocker {
		w.status.Holder.Data = watch.Data()
	}
	if w.q.OnWaiting != nil { // after the watch, because a server that refuses it keeps us from waiting
		w.q.OnWaiting()
	}
	for {
		now := w.s.Snapshot()
		if w.epoch != now.Epoch || w.owner != now.ID { // after a mere disconnect the waiter goes on
			return false, nil
		}
		select {
		case <-watch.Fired():
			return w.isOnlyBlocker && watch.IsGone() && w.s.TellsEveryEvent(), nil
		case <-w.ownWatch.Fired():
			return false, nil
		case <-now.Changed:
		case <-ctx.Done():
			return false, zkutil.Interrupted(ctx, nil)
		}
	}
}

// watchBlocker fails for a blocker that may not be read, so that the caller of an Acquire learns of
// it. A candidate has no such caller: for it the watch fires after a pause instead.
func (w *waiter) watchBlocker(ctx context.Context) (*session.Watch, error) {
	watch := w.s.Watch
	if w.q.KeepNode {
		watch = w.s.WatchPeer
	}
	return session.Repeat(ctx, w.s, func() (*session.Watch, error) { return watch(ctx, w.blocker) })
}

// claimHold makes the znode a hold: see Session.Grant.
func (w *waiter) claimHold(ctx context.Context) (*session.Entry, error) {
	return w.s.Grant(ctx, session.Claim{
		Key: w.q.holdKey(), Path: w.path, Token: w.token, Owner: w.owner, Own: w.ownWatch, Epoch: w.epoch,
		IsRevoked: w.isRevoked, KeepNode: w.q.KeepNode,
	})
}

// leaveQueue deletes the znode in the background. For a TryAcquire that was not granted it waits
// until the znode is gone; after other failures there is no time or no znode left.
func (w *waiter) leaveQueue(ctx context.Context, why error) {
	removed := w.s.RemoveLater(ctx, w.path)
	if !errors.Is(why, zkutil.ErrNotAcquired) {
		return
	}
	limit := time.NewTimer(w.s.Config().OperationTimeout)
	defer limit.Stop()
	select {
	case <-removed:
	case <-limit.C:
	case <-ctx.Done():
	}
}
