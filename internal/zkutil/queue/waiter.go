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

// waiter is one znode of ours in a queue, with the facts from the latest read of the znode and of the queue. Only one goroutine uses a
// waiter.
type waiter struct {
	q    *Queue
	s    *session.Session
	path string
	self Contender

	mayWait   bool  // for a predecessor
	hasLooked bool  // the result of a look at the queue is not used yet
	failure   error // of the look

	joined []Contender // the queue right behind the create of the znode; nil: not read, or used already

	epoch     uint64         // of the connection when the queue was last read
	owner     int64          // session of the own znode; 0: not known yet
	token     int64          // czxid of the own znode
	outer     *session.Entry // of the hold whose number the znode has; nil: the znode has its own number
	ownWatch  *session.Watch // on the own znode; nil: none was set yet
	isRevoked bool           // a peer has asked for the lease
	twins     []Contender    // other znodes with our uuid, which are being deleted

	blocker      string // path of the predecessor to wait for, as the rule decides; "": none
	blockerWatch *session.Watch
	settling     *time.Timer // until doDue has work: the watch on the own znode, a warning, a read of the holder; nil: no work is pending
	position     position

	status    *WaitStatus // nil: nobody asks for the status
	settledAt time.Time   // when the wait for the blocker counts as long: see settlingTime
}

// setPath gives a new waiter the path of its znode, which is still unread.
func (w *waiter) setPath(path string) {
	_, name := zkutil.Split(path)
	w.path = path
	w.self, _ = newContender(name, w.q.Markers)
}

// awaitHold blocks until the rule lets the waiter proceed, and makes the znode a hold. awaitHold returns ErrNotAcquired if the waiter
// would have to wait and may not. After an error the waiter has left the queue.
func (w *waiter) awaitHold(ctx context.Context) (*session.Entry, error) {
	defer w.releaseBlocker()
	for ; ; w.hasLooked = false {
		if !w.hasLooked {
			w.failure = w.lookInShortTask(ctx)
		}
		if w.failure != nil {
			return w.giveUp(ctx, w.failure)
		}
		if w.blockerWatch != nil {
			w.expectOwnHold()
			if isOurTurn, err := w.awaitBlocker(ctx); err != nil {
				return w.giveUp(ctx, err)
			} else if !isOurTurn {
				continue
			}
		}
		entry, err := w.claimHold(ctx)
		switch {
		case err == nil:
			return entry, nil
		case !errors.Is(err, zkutil.ErrStale):
			return w.giveUp(ctx, err)
		}
	}
}

// giveUp leaves the queue because of an error, and returns the error.
func (w *waiter) giveUp(ctx context.Context, why error) (*session.Entry, error) {
	w.q.reportJoined("")
	w.leaveQueue(ctx, why)
	return nil, why
}

func (w *waiter) lookInShortTask(ctx context.Context) error {
	return w.s.RunShortTask(ctx, w.look)
}

// look reads the queue, and watches the blocker if the rule names a blocker. look returns ErrNotAcquired if the waiter has a blocker and
// may not wait. If look leaves no watch, our turn has come.
func (w *waiter) look(ctx context.Context) error {
	for {
		if w.blockerWatch == nil || !w.blockerWatch.IsGone() {
			w.position.turn = turnAtListing
		}
		w.releaseBlocker()
		if err := w.refresh(ctx); err != nil || w.blocker == "" {
			return err
		}
		if !w.mayWait {
			return zkutil.ErrNotAcquired
		}
		watch, err := w.watchBlocker(ctx)
		if !errors.Is(err, zk.ErrNoNode) {
			w.blockerWatch = watch
			return err
		}
		if w.position.hasOnlyBlocker() && w.s.TellsEveryEvent() && w.knowsOwnNode() {
			w.position = w.position.advanced()
			return nil // see takeTurn
		}
	}
}

func (w *waiter) releaseBlocker() {
	w.s.ReleaseWatch(w.blockerWatch)
	w.blockerWatch = nil
}

// refresh looks at the queue, and at the own znode if the znode may have changed.
func (w *waiter) refresh(ctx context.Context) error {
	_, err := session.Repeat(ctx, w.s, func() (struct{}, error) { return struct{}{}, w.refreshOnce(ctx) })
	return err
}

func (w *waiter) refreshOnce(ctx context.Context) error {
	now := w.s.Snapshot()
	if w.owner != 0 && w.owner != now.ID {
		return zkutil.ContenderLost(zkutil.ErrSessionLost)
	}
	queue, err := w.takeJoined(now.Epoch), error(nil)
	if queue == nil {
		queue, err = w.readNodeAndQueue(ctx, now.Epoch)
	}
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

// takeJoined returns the queue right behind the create of the znode, the first time; nil afterwards and on another connection.
func (w *waiter) takeJoined(epoch uint64) []Contender {
	joined := w.joined
	if w.joined = nil; w.epoch != epoch {
		return nil
	}
	return joined
}

// readNodeAndQueue sends all its requests before the first wait for an answer. The own znode is read only if nothing is known of the
// znode, or its watch has fired: the queue shows whether the znode exists. If the answer is likely to show that our turn has come,
// readNodeAndQueue also sends the proof for the grant.
func (w *waiter) readNodeAndQueue(ctx context.Context, epoch uint64) ([]Contender, error) {
	if w.position.isTurnNear() && w.epoch == epoch {
		defer w.s.StartProof(ctx, w.path)()
	}
	var ownRead *session.OwnRead
	if w.owner == 0 || w.ownWatch != nil && (w.epoch != epoch || w.ownWatch.HasFired()) {
		var err error
		if ownRead, err = w.s.StartReadOwn(ctx, w.path); err != nil {
			return nil, err
		}
	}
	queue, err := w.q.ListContenders(ctx)
	if ownRead != nil {
		if err := w.recordOwnNode(ctx, ownRead); err != nil {
			return nil, err
		}
	}
	return queue, err
}

// recordOwnNode records the token, the owner, and an earlier revocation from one read, which also sets the watch for a deletion and a
// later revocation. So the waiter misses nothing in between.
func (w *waiter) recordOwnNode(ctx context.Context, ownRead *session.OwnRead) error {
	n, watch, err := ownRead.Wait(ctx)
	if err != nil {
		return err
	}
	w.ownWatch, w.owner, w.token = watch, n.Stat.EphemeralOwner, n.Stat.Czxid
	if w.outer != nil {
		w.token = w.outer.Token()
	}
	w.isRevoked = w.isRevoked || string(n.Data) == session.Revocation
	return nil
}

// withoutTwins returns the queue without the other znodes that carry our uuid, and has the session delete such twins. A twin comes from
// a create that was sent again after its answer was lost: the search found no znode, and the first request was executed later. A waiter that
// waited for its own twin would wait forever.
func (w *waiter) withoutTwins(ctx context.Context, queue []Contender) []Contender {
	uuid := zkutil.ProtectionOf(w.self.Name)
	isTwin := func(c Contender) bool { return uuid != "" && c != w.self && zkutil.ProtectionOf(c.Name) == uuid }
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
			w.s.RemoveTwin(ctx, w.path, path)
		}
	}
	return others
}

// awaitBlocker blocks until the blocker, the own znode or the connection may have changed. isOurTurn reports that the waiter needs no
// other look at the queue: see takeTurn.
func (w *waiter) awaitBlocker(ctx context.Context) (isOurTurn bool, err error) {
	w.recordBlocker()
	w.settledAt = time.Now().Add(w.settlingTime())
	defer w.endSettling()
	for {
		now := w.s.Snapshot()
		switch {
		case now.IsClosing:
			return false, zkutil.ErrClosed
		case w.epoch != now.Epoch, w.owner != now.ID: // after a mere disconnect the waiter goes on
			return false, nil
		case w.settling == nil:
			w.settling = w.newTimer()
		}
		switch w.sleep(ctx, now.Changed) {
		case byBlocker:
			return w.takeTurn(ctx)
		case byOwnNode:
			return false, nil
		case byHold:
			w.endSettling()
			if err := w.watchOwnNode(ctx); err != nil {
				return false, err
			}
		case bySettling:
			w.settling = nil // the timer has fired
			if err := w.doDue(ctx); err != nil {
				return false, err
			}
		case byConnection:
		case byContext:
			return false, zkutil.Interrupted(ctx, nil)
		}
	}
}

// claimHold makes the znode a hold: see Session.Grant.
func (w *waiter) claimHold(ctx context.Context) (*session.Entry, error) {
	return w.s.Grant(ctx, session.Claim{
		Key: w.q.HoldKey(), Path: w.path, Token: w.token, Owner: w.owner, Own: w.ownWatch, Epoch: w.epoch,
		IsRevoked: w.isRevoked, IsFirst: w.position.isFirst, MaxHold: w.q.MaxHold, KeepNode: w.q.KeepNode, UserPath: w.q.Path, Data: w.q.Data,
	})
}

// leaveQueue deletes the znode in the background. For a TryAcquire that was not granted, leaveQueue waits until the znode is gone; after
// other failures no time or no znode is left.
func (w *waiter) leaveQueue(ctx context.Context, why error) {
	if errors.Is(why, zkutil.ErrContenderLost) {
		w.s.Budget().Free(w.path) // so that the place is free for the next attempt
	}
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
	case <-w.s.Context().Done():
	}
}
