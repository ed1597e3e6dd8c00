package queue

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/departures"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// waiter is one znode of ours in a queue, with the facts from the latest read of the znode and of the queue. Only one goroutine uses a
// waiter.
type waiter struct {
	q    *Queue
	s    *session.Session
	path string
	self Contender

	basket      *Basket             // whose contenders must not stay while this waiter waits; nil: none
	reservation *budget.Reservation // of a waiter of the basket

	mayWait    bool            // for a predecessor
	departures departures.Wait // unless mayWait
	listed     []Contender     // the latest queue, unless mayWait

	joined []Contender // the queue right behind the create of the znode; nil if not read, or used already

	epoch       uint64         // of the connection of the latest list, or of the latest stepWatchAgain
	owner       int64          // session of the own znode; 0 if not known yet
	token       int64          // czxid of the own znode
	birth       session.Birth  // of the own znode
	outer       *session.Entry // of the hold whose number the znode has; nil if the znode has its own number
	ownWatch    *session.Watch // on the own znode; nil: none was set yet
	isRevoked   bool           // a peer asked for the lease
	isAnnounced bool           // the log has the wait of this candidate
	twins       []Contender    // other znodes with our uuid, which are being deleted

	isListed bool     // see sight
	position position // at the latest list
	ahead    int      // how many were ahead then

	blocker          string // path of the predecessor to wait for, as the rule decides; "": none
	isDoubted        bool   // the blocker replaced another one, which may have held the lock that only this server still shows as taken
	blockerWatch     *session.Watch
	isBlockerMissing bool // there was no such znode to watch, so blockerWatch is nil

	status     *WaitStatus // nil if no caller needs the status
	longWaitAt time.Time   // when the wait for the blocker counts as long (see farFromTurn)
}

// setPath gives a new waiter the path of its znode, which is still unread.
func (w *waiter) setPath(path string) {
	_, name := zkutil.Split(path)
	w.path = path
	w.self, _ = newContender(name, w.q.Markers)
}

// awaitHold blocks until the rule lets the waiter proceed, and makes the znode a hold. awaitHold returns ErrNotAcquired if the waiter
// would have to wait and may not. After an error the waiter is no longer in the queue.
func (w *waiter) awaitHold(ctx context.Context) (*session.Entry, error) {
	defer w.releaseBlocker()
	looking := w.status.WarnInOutage(ctx, w.q) // not for the grant, whose hold keeps the values of its context
	for {
		var err error
		now := w.s.Snapshot()
		switch w.choose(now) {
		case stepList:
			err = w.list(looking)
		case stepRefuse:
			err = w.awaitDeparture(looking)
		case stepWatch:
			err = w.watch(looking)
		case stepWatchAgain:
			w.forgetConnection(now) // the next step watches
		case stepReadOwn:
			err = w.watchOwnNode(ctx)
		case stepWait:
			err = w.await(ctx, now)
		case stepClaim:
			entry, err := w.claimHold(ctx)
			if err == nil {
				return entry, nil
			}
			if !errors.Is(err, zkutil.ErrStale) {
				return w.giveUp(ctx, err)
			}
			w.isListed = false
		}
		if err != nil {
			return w.giveUp(ctx, err)
		}
	}
}

// choose returns the next step. What it is chosen by takes no room on the stack of a waiter that waits.
//
//go:noinline
func (w *waiter) choose(now session.Snapshot) step { return w.sight(now).next() }

// sight returns what the waiter knows. It reads the blocker before the own znode, because condition 4 is about events before that of the
// blocker.
func (w *waiter) sight(now session.Snapshot) sight {
	return sight{
		isListed: w.isListed, position: w.position, hasBlocker: w.blocker != "", mayWait: w.mayWait,
		isOver: w.owner != 0 && w.owner != now.ID, isReconnected: w.epoch != now.Epoch,
		blocker: w.blockerSeen(), wasFirst: w.blockerWatch != nil && w.s.IsFirst(w.blockerWatch), own: seenBy(w.ownWatch),
	}
}

func (w *waiter) blockerSeen() seen {
	if w.isBlockerMissing {
		return gone
	}
	return seenBy(w.blockerWatch)
}

// seenBy returns what a watch shows about its znode. nil stands for no watch.
func seenBy(w *session.Watch) seen {
	switch {
	case w == nil:
		return unwatched
	case w.IsGone():
		return gone
	case w.HasFired():
		return changed
	default:
		return standing
	}
}

// giveUp leaves the queue because of an error, and returns the error.
func (w *waiter) giveUp(ctx context.Context, why error) (*session.Entry, error) {
	w.q.reportJoined("")
	w.leaveQueue(ctx, why)
	return nil, why
}

// list lists the queue. If the waiter has a blocker, the other waiters of its basket leave.
func (w *waiter) list(ctx context.Context) error {
	isNear := w.blockerSeen() == gone && w.position.isTurnNear()
	w.releaseBlocker()
	w.isBlockerMissing = false
	_, err := session.Repeat(ctx, w.s, func() (struct{}, error) { return struct{}{}, w.refresh(ctx, isNear) })
	if err == nil && w.blocker != "" {
		w.basket.Leave()
	}
	return err
}

// watch watches the blocker, or records that it does not exist.
func (w *waiter) watch(ctx context.Context) error {
	watch, err := w.watchBlocker(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		w.isBlockerMissing = true
		return nil
	}
	if err != nil {
		return err
	}
	w.blockerWatch, w.longWaitAt = watch, time.Now().Add(farFromTurn)
	w.expectOwnHold()
	w.recordBlocker()
	return nil
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

// forgetConnection prepares a waiter for another connection, whose server may be behind the latest list. So the turn needs another list.
// The own znode is read as late as after any list that does not show the turn near.
func (w *waiter) forgetConnection(now session.Snapshot) {
	w.releaseBlocker()
	w.position.turn, w.ownWatch, w.epoch = turnAtListing, nil, now.Epoch
}

// awaitDeparture returns nil if another list may not show a blocker, and otherwise ErrNotAcquired or the error of the wait.
func (w *waiter) awaitDeparture(ctx context.Context) error {
	w.isListed = false
	mayLookAgain, err := w.departures.Await(ctx, w.isRefused)
	if err == nil && !mayLookAgain {
		return zkutil.ErrNotAcquired
	}
	return err
}

// isRefused reports whether the rule names a blocker without the contenders that are departing.
func (w *waiter) isRefused(isDeparting func(name string) bool) bool {
	queue := slices.DeleteFunc(slices.Clone(w.listed), func(c Contender) bool { return c != w.self && isDeparting(c.Name) })
	own, _ := slices.BinarySearchFunc(queue, w.self, Contender.compare)
	return w.q.Rule(queue, own) >= 0
}

func (w *waiter) releaseBlocker() {
	w.s.ReleaseWatch(w.blockerWatch)
	w.blockerWatch = nil
}

// refresh lists the queue, and reads the own znode if the znode may have changed. isNear means that the list probably shows our turn.
func (w *waiter) refresh(ctx context.Context, isNear bool) error {
	now := w.s.Snapshot()
	if w.owner != 0 && w.owner != now.ID {
		return zkutil.ContenderLost(zkutil.ErrSessionLost)
	}
	queue, err := w.joined, error(nil)
	if w.joined = nil; queue == nil || w.epoch != now.Epoch {
		queue, err = w.readNodeAndQueue(ctx, now.Epoch, isNear)
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

// readNodeAndQueue sends all its requests before the first wait for an answer. The own znode is read only if it was never read, or
// if its watch fired or is from before a reconnect. The queue already shows whether it exists. If the answer probably shows our
// turn, readNodeAndQueue also sends the proof for the grant.
func (w *waiter) readNodeAndQueue(ctx context.Context, epoch uint64, isNear bool) ([]Contender, error) {
	if isNear && w.epoch == epoch {
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
	w.birth.Ctime = n.Stat.Ctime
	if w.outer != nil {
		w.token = w.outer.Token()
	}
	w.isRevoked = w.isRevoked || session.IsRevocation(n.Data)
	return nil
}

// withoutTwins returns the queue without the other znodes that carry our uuid, and has the session delete such twins. A twin is left by a
// create that was sent again after its answer was lost. The search found no znode, and the server executed the first request later. A
// waiter that waited for its own twin would wait forever.
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
			w.s.Log(slog.LevelWarn, "one create made two znodes; deleting the other", "znode", path)
			w.s.RemoveTwin(ctx, w.path, path)
		}
	}
	return others
}

// await blocks until a fact of sight may have changed since now. It does the timed work that is due meanwhile.
func (w *waiter) await(ctx context.Context, now session.Snapshot) error {
	if now.IsClosing {
		return zkutil.ErrClosed
	}
	var due <-chan time.Time
	if timer := w.newTimer(); timer != nil {
		defer timer.Stop()
		due = timer.C
	}
	ownChanged, heldHere := w.ownChanged()
	select {
	case <-w.blockerWatch.Fired():
	case <-ownChanged:
	case <-heldHere:
	case <-now.Changed:
	case <-due:
		return w.doDue(ctx)
	case <-ctx.Done():
		return zkutil.Interrupted(ctx, nil)
	}
	return nil
}

// claimHold makes the znode a hold (see Session.Grant).
func (w *waiter) claimHold(ctx context.Context) (*session.Entry, error) {
	isFirst := sight{position: w.position, hasBlocker: w.blocker != ""}.isFirst()
	return w.s.Grant(ctx, session.Claim{
		Key: w.q.HoldKey(), Path: w.path, Token: w.token, Owner: w.owner, Birth: w.birth, Own: w.ownWatch, Epoch: w.epoch,
		IsRevoked: w.isRevoked, IsFirst: isFirst, MaxHold: w.q.MaxHold, SlowHold: w.q.SlowHold, KeepNode: w.q.KeepNode, NoWait: w.q.NoWait, UserPath: w.q.Path, Data: w.q.Data,
	})
}

// leaveQueue deletes the znode in the background. For a TryAcquire that was not granted, leaveQueue waits until the znode is deleted.
// After other failures no time or no znode is left.
func (w *waiter) leaveQueue(ctx context.Context, why error) {
	if errors.Is(why, zkutil.ErrContenderLost) {
		w.s.Budget().Free(w.path) // so that the bytes are free for the next attempt
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
