package session

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Hold is a znode whose contender the rule of its queue lets proceed, for as long as the session is trusted. A Hold counts the entries
// of its owner, and ends with the last entry.
type Hold struct {
	s         *Session
	path      string
	token     int64
	key       HoldKey
	owner     int64  // the session of the znode
	keepsNode bool   // the znode stays until Vacate
	isFirst   bool   // of its queue
	userPath  string // of the lock, as the user gave it
	data      []byte // of the znode at creation; nil: Session.ID
	grantedAt time.Time
	first     Entry
	whole     *Hold          // of which this hold is a part; nil: this hold has its own znode
	onLeft    func() Leaving // of a part: see Entry.Part

	// Guarded by s.mu.
	isRevoked   bool               // a revocation has come
	revokedDone chan struct{}      // closed when a revocation has come; nil: nobody has asked for the channel
	endReads    context.CancelFunc // ends the reads of the znode; nil: not followed yet
	onRevoked   func()
	limit       holdLimit
	part        *Hold // the present one; nil: none
	entries     []*Entry
	oneEntry    [1]*Entry // room for entries, mostly a single one
	cause       error     // why the hold has ended; nil while it stands
	until       time.Time // end of trust; set when the hold ends
	why         error     // reason of the end for the log: see endForLocked; set when the hold ends
	endedAt     time.Time
	removal     *removal
	slowTimer   *time.Timer // see expectSlowLocked; nil: nobody asks for it
}

// HoldKey is the key of a hold in a context.
type HoldKey struct {
	Session     *Session
	Dir, Recipe string
}

// HoldOf returns the hold carried by ctx for key, nil if none.
func HoldOf(ctx context.Context, key HoldKey) *Hold {
	h, _ := ctx.Value(key).(*Hold)
	return h
}

// Enter enters the hold again. If the hold has ended, the error is the cause. Otherwise, if refusal is not nil,
// the error is refusal: the caller checks ctx for its end, because ctx may be user code, which must not run
// under the session's lock.
func (h *Hold) Enter(ctx context.Context, refusal error) (*Entry, error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.endIfUntrustedLocked()
	if err := h.endedLocked(); err != nil {
		return nil, err
	}
	if refusal != nil {
		return nil, refusal
	}
	return h.enterLocked(ctx, &Entry{}), nil
}

func (h *Hold) enterLocked(ctx context.Context, e *Entry) *Entry {
	e.hold, e.entered = h, enteredContext{ctx, h}
	e.ctx, e.cancel = context.WithCancelCause(&e.entered)
	h.entries = append(h.entries, e)
	return e
}

// endIfUntrustedLocked ends the hold if trust has run out. The keeper does the same, but late after a pause of
// the process.
func (h *Hold) endIfUntrustedLocked() {
	if h.cause == nil && h.s.ledger.Timeout() > 0 && !h.s.keeper.isTrustedLocked() {
		h.ofZnode().endLocked(zkutil.ErrSessionLost)
	}
	h.endIfOverLimitLocked()
}

// endLocked ends the hold: first the contexts of its entries, then the znode. After ErrReleased the caller has
// to begin the removal.
func (h *Hold) endLocked(cause error) { h.endForLocked(cause, cause) }

// endForLocked is endLocked with another reason for the log. Every end of a hold comes here:
//
//   - by its owner: beginLeave of the last entry, and EndWhole (ErrReleased);
//   - when trust has run out: keeper.tick, and endIfUntrustedLocked after a pause (ErrSessionLost);
//   - when the session is over, or another: link.endSessionLocked (ErrSessionLost);
//   - at a disconnect, if the client asks for that: link.onDisconnected (ErrSuspended);
//   - when the znode is gone: watches.fire, followOwnNode and keeper.onCheckRefused (ErrNodeDeleted);
//   - at the end of the client: lifecycle.beginClosing (ErrClosed).
//
// The end of WithMaxHold ends a leader's hold here, and otherwise only the contexts of the entries: see holdLimit.
func (h *Hold) endForLocked(cause, why error) {
	if h.cause != nil {
		return
	}
	s := h.s
	h.cause, h.until = cause, zkutil.Earliest(s.ledger.Until(), s.clock.Now())
	h.why, h.endedAt = why, time.Now()
	h.limit.stopLocked()
	h.stopSlowLocked()
	for _, e := range h.entries {
		e.cancel(cause)
		if traced := e.endTracedLocked(cause); traced != nil {
			s.report.postTraceLocked(traced.callLeaseEnd)
		}
	}
	if h.whole != nil {
		h.endPartLocked()
		return
	}
	if h.part != nil {
		h.part.endLocked(cause)
	}
	delete(s.holds.byPath, h.path)
	s.holds.tellWireLocked()
	if h.endReads != nil {
		h.endReads()
	}
	if !h.keepsNode {
		h.removal = newRemovalLocked(s, h.path)
		if !errors.Is(cause, zkutil.ErrReleased) { // otherwise the owner begins the removal
			h.removal.goOnLocked(nil)
		}
	}
	s.keeper.releaseLocked()
	h.showEndLocked()
}

// endAllLocked ends all holds of the session.
func (hs *holds) endAllLocked(cause error) {
	for _, hold := range hs.byPath {
		hold.endLocked(cause)
	}
}

// tellWireLocked notifies the wire whether the session has holds.
func (hs *holds) tellWireLocked() {
	s := hs.s
	if s.wire != nil {
		s.wire.SetHolding(len(hs.byPath) > 0)
	}
}

// Entry is one acquisition of a hold: the first, or a re-entry.
type Entry struct {
	hold    *Hold
	entered enteredContext
	ctx     context.Context
	cancel  context.CancelCauseFunc
	// Guarded by Session.mu.
	hasLeft     bool
	acquisition *Acquisition // whose LeaseEnd is still to come; nil: none
}

// enteredContext has the values of a context, and carries a hold. An enteredContext never ends.
type enteredContext struct {
	context.Context //nolint:containedctx // the context that has entered

	hold *Hold
}

func (*enteredContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (*enteredContext) Done() <-chan struct{}                   { return nil }
func (*enteredContext) Err() error                              { return nil }

func (c *enteredContext) Value(key any) any {
	switch key := key.(type) {
	case HoldKey:
		if key == c.hold.key {
			return c.hold
		}
	case leftoversKey:
		if c.hold.keepsNode { // calls with a term's context leave nothing to the candidate
			return nil
		}
	}
	return c.Context.Value(key)
}

// OnRevoked posts fn to order when a revocation comes, or at once if a revocation has already come.
func (e *Entry) OnRevoked(order *Callbacks, fn func()) {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.onRevoked = func() {
		if order.TryPost(fn) {
			h.s.report.noteLeftOutLocked("revocation listener")
		}
	}
	if h.ofZnode().isRevoked {
		h.onRevoked()
	}
}

// Context returns the context of the entry, which ends with Leave or with the hold; the cause is the reason.
// The context has the values of the context that entered, and carries the hold.
func (e *Entry) Context() context.Context { return e.ctx }

// Token returns the czxid of the hold's znode.
func (e *Entry) Token() int64 { return e.hold.token }

// Path returns the path of the hold's znode.
func (e *Entry) Path() string { return e.hold.path }

// GrantedAt returns when the hold began.
func (e *Entry) GrantedAt() time.Time { return e.hold.grantedAt }

// Revoked returns a channel that is closed when a peer has asked for the hold.
func (e *Entry) Revoked() <-chan struct{} {
	h := e.hold.ofZnode()
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.revokedDone == nil {
		h.revokedDone = make(chan struct{})
		if h.isRevoked {
			close(h.revokedDone)
		}
	}
	return h.revokedDone
}

// TrustedUntil returns until when the hold stands unless another heartbeat proves the session, by the clock of
// time.Now. After the end of the hold, the time is no later than the end. The time is zero while the session
// timeout is unknown.
func (e *Entry) TrustedUntil() time.Time {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.endIfUntrustedLocked()
	if h.cause != nil {
		return h.s.clock.Local(h.until)
	}
	return h.s.clock.Local(h.limit.earlierLocked(h.s.ledger.Until()))
}

// Leave gives up the entry. The last entry ends the hold, and deletes the znode unless the claim keeps the
// znode. A second call of Leave returns ErrNotHeld. If the hold has ended before, Leave returns the cause.
func (e *Entry) Leave() error { return e.LeaveFor(zkutil.ErrReleased) }

// LeaveFor is Leave with another cause for the end of the entry's context.
func (e *Entry) LeaveFor(cause error) error { return e.beginLeave(cause, cause).Await(nil) }

// Fail is Leave for an owner whose work has failed: the log and the traces show the failure, while the context
// ends with ErrReleased.
func (e *Entry) Fail() error { return e.beginLeave(zkutil.ErrReleased, zkutil.ErrFailed).Await(nil) }

// Yield is Leave for a leader that steps down for another candidate; the log says so.
func (e *Entry) Yield() error { return e.beginLeave(zkutil.ErrReleased, zkutil.ErrYielded).Await(nil) }

// BeginLeave is Leave without the wait: when it returns, the deletion of the znode has begun.
func (e *Entry) BeginLeave() Leaving { return e.beginLeave(zkutil.ErrReleased, zkutil.ErrReleased) }

// beginLeave ends the context of the entry with cause. why is for the log.
func (e *Entry) beginLeave(cause, why error) Leaving {
	h, s := e.hold, e.hold.s
	hasFailed := errors.Is(why, zkutil.ErrFailed) // not under the lock, because why may be the user's
	s.mu.Lock()
	if e.hasLeft {
		s.mu.Unlock()
		return Leaving{err: zkutil.ErrNotHeld}
	}
	e.hasLeft = true
	h.endIfUntrustedLocked()
	overLimit := h.limit.errorLocked()
	if h.cause != nil {
		defer s.mu.Unlock()
		return Leaving{err: zkutil.Both(overLimit, h.cause)}
	}
	if overLimit != nil {
		why, hasFailed = overLimit, false
	}
	e.cancel(cause)
	h.entries = slices.DeleteFunc(h.entries, func(other *Entry) bool { return other == e })
	var failure error // for the traces, which see every other end by the owner as a success
	if hasFailed {
		failure = zkutil.ErrFailed
	}
	traced, isLast := e.endTracedLocked(failure), len(h.entries) == 0
	if isLast {
		h.endForLocked(zkutil.ErrReleased, why)
	}
	removal := h.removal
	s.mu.Unlock()
	var left Leaving
	switch {
	case !isLast:
	case removal != nil:
		removal.begin()
		left = newLeaving(removal)
	case h.onLeft != nil:
		left = h.onLeft()
	}
	left.err = zkutil.Both(left.err, overLimit)
	if traced != nil {
		traced.callLeaseEnd() // now, when others can have the lock, because the user's function may take long or ask for the lock
	}
	return left
}

// Loss is the cause of the hold's end, nil while the hold stands and after its owner has left it. A hold over its
// limit has ErrMaxHold, also after its owner has left it.
func (e *Entry) Loss() error {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.cause == nil || errors.Is(h.cause, zkutil.ErrReleased) {
		return h.limit.errorLocked()
	}
	return h.cause
}

// Vacate begins to delete the znode of a hold that has ended and was kept. The channel is closed once the znode
// is known to be gone.
func (e *Entry) Vacate() (done <-chan struct{}) {
	h := e.hold
	h.s.mu.Lock()
	isFirst := h.removal == nil
	if isFirst {
		h.removal = newRemovalLocked(h.s, h.path)
		h.showVacatedLocked()
	}
	h.s.mu.Unlock()
	if isFirst {
		h.removal.begin()
	}
	return h.removal.done
}

// IsGone reports whether the znode is known to be gone, although nobody has vacated it.
func (e *Entry) IsGone() bool {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return errors.Is(h.cause, zkutil.ErrNodeDeleted) || h.cause != nil && h.owner != h.s.link.id
}

// Stands reports whether the hold stands and the entry has not left.
func (e *Entry) Stands() bool {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.endIfUntrustedLocked()
	return h.endedLocked() == nil && !e.hasLeft
}

// Recipe returns the name of the recipe, such as "mutex".
func (e *Entry) Recipe() string { return e.hold.key.Recipe }

// UserPath returns the path of the lock or the election, as the user gave it.
func (e *Entry) UserPath() string { return e.hold.userPath }

// ID returns the data that identifies the holder to others.
func (e *Entry) ID() string { return e.hold.id() }

// Part creates a part of the entry's hold: a hold for one of several successive owners of one znode. A part has
// its own entries, a context carries a part like any hold, and a part ends at the latest with the whole. A hold
// has one part at a time: the caller asks for the next part when onLeft is called.
//
// maxHold is the limit of the part, 0 for none. onLeft is called under no lock when the last entry of the part has been left, unless the whole was
// lost before. Leave waits for what it returns. If the whole has ended, the error of Part is the cause.
func (e *Entry) Part(ctx context.Context, maxHold time.Duration, onLeft func() Leaving) (*Entry, error) {
	h, s := e.hold, e.hold.s
	s.mu.Lock()
	defer s.mu.Unlock()
	h.endIfUntrustedLocked()
	if h.cause != nil {
		return nil, h.cause
	}
	h.part = &Hold{
		s: s, path: h.path, token: h.token, key: h.key, userPath: h.userPath, data: h.data, grantedAt: time.Now(), whole: h, onLeft: onLeft,
	}
	h.part.entries = h.part.oneEntry[:0]
	h.part.limitLocked(maxHold)
	h.stopSlowLocked() // its owners are those of the parts
	h.part.expectSlowLocked()
	return h.part.enterLocked(ctx, &h.part.first), nil
}

// EndWhole ends the entry's hold with all entries and the part, and begins to delete the znode. The result also
// waits for the deletion of a hold lost before.
func (e *Entry) EndWhole() Leaving {
	h, s := e.hold, e.hold.s
	s.mu.Lock()
	stands := h.cause == nil
	h.endLocked(zkutil.ErrReleased)
	removal := h.removal
	s.mu.Unlock()
	if stands {
		removal.begin()
	}
	return newLeaving(removal)
}

// ofZnode returns the hold that has the znode: for a part, the whole.
func (h *Hold) ofZnode() *Hold {
	if h.whole != nil {
		return h.whole
	}
	return h
}

// endPartLocked detaches an ended part from the whole, whose znode stays.
func (h *Hold) endPartLocked() {
	if h.whole.part == h {
		h.whole.part = nil
	}
}

// listenerLocked returns the listener for a revocation: of the present part, or otherwise of the hold.
func (h *Hold) listenerLocked() func() {
	if h.part != nil {
		return h.part.onRevoked
	}
	return h.onRevoked
}

// Revocation is the text that a peer writes into a contender's znode to ask for the lease, the same as
// Curator's.
const Revocation = "__REVOKE__"

// WatchOwnAfter is how long a new hold is not followed, and mostly has no watch on its own znode: most holds
// end sooner. A deletion or a revocation is noticed within 10 ms on a quick line.
const WatchOwnAfter = 6 * time.Millisecond

// holds are the holds of the session. Guarded by Session.mu.
type holds struct {
	s      *Session
	byPath map[string]*Hold // by their znodes
	young  newHolds
}

// newHolds are the holds not followed yet, the earliest first. All share one timer, because each change of a
// timer may wake another thread. Guarded by Session.mu.
type newHolds struct {
	claimed []claimed
	timer   *time.Timer // runs while claimed is not empty; some holds in claimed may have ended
}

// claimed is a hold, with the state of its znode at the claim.
type claimed struct {
	hold  *Hold
	own   *Watch // nil: none is set
	epoch uint64
}

// followSoonLocked schedules followLocked for a new hold that lasts for WatchOwnAfter.
func (h *Hold) followSoonLocked(c Claim) {
	n := &h.s.holds.young
	n.claimed = append(n.claimed, claimed{h, c.Own, c.Epoch})
	switch {
	case len(n.claimed) > 1:
	case n.timer == nil:
		n.timer = time.AfterFunc(WatchOwnAfter, h.s.holds.followYoung) // stopped in finishClosing
	default:
		n.timer.Reset(WatchOwnAfter)
	}
}

// stopLocked stops the timer.
func (n *newHolds) stopLocked() {
	if n.timer != nil {
		n.timer.Stop()
	}
}

// followYoung follows the holds that have lasted for WatchOwnAfter.
func (hs *holds) followYoung() {
	s := hs.s
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &hs.young
	young := n.claimed[:0]
	for _, c := range n.claimed {
		switch {
		case c.hold.cause != nil:
		case time.Since(c.hold.grantedAt) < WatchOwnAfter:
			young = append(young, c)
		default:
			c.hold.followLocked(c.own, c.epoch)
		}
	}
	clear(n.claimed[len(young):])
	if n.claimed = young; len(young) > 0 {
		n.timer.Reset(WatchOwnAfter - time.Since(young[0].hold.grantedAt))
	}
}

// followLocked begins to follow the znode of a hold.
func (h *Hold) followLocked(own *Watch, epoch uint64) {
	ctx, end := context.WithCancel(h.s.life.tasksCtx)
	h.endReads = end
	h.s.backgroundLocked(func(context.Context) { h.followOwnNode(ctx, own, epoch) })
}

// followOwnNode re-reads the znode after each possible change, at once without a watch, to catch a revocation,
// or a deletion whose event was lost. followOwnNode ends with the hold. An event of the deletion ends the hold
// elsewhere: see watches.fire.
func (h *Hold) followOwnNode(ctx context.Context, own *Watch, epoch uint64) {
	s := h.s
	for {
		now := s.Snapshot()
		if own != nil && now.Epoch == epoch {
			select {
			case <-own.fired:
			case <-now.Changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		epoch = s.Snapshot().Epoch // the watch may have fired because of a new connection
		var n Node
		var err error
		n, own, err = h.readOwn(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.mu.Lock()
			h.endAsDeletedLocked()
			s.mu.Unlock()
			return
		}
		s.mu.Lock()
		if h.cause == nil {
			s.keeper.nodes[h.path] = struct{}{}
		}
		if string(n.Data) == Revocation {
			h.noteRevocationLocked()
		}
		s.mu.Unlock()
	}
}

// readOwn repeats the read of the znode until success, until the znode is gone, or until the hold ends. It
// tries at least as often as heartbeats are sent, because while the znode can't be read nothing else detects a
// deletion.
func (h *Hold) readOwn(ctx context.Context) (n Node, own *Watch, err error) {
	hasWarned := false
	policy, period := h.s.cfg.Retry.Patient(), h.s.keeper.beatPeriod()
	policy.InitialInterval, policy.MaxInterval = min(policy.InitialInterval, period), min(policy.MaxInterval, period)
	mayExist := func(err error) bool { return !errors.Is(err, zk.ErrNoNode) }
	n, err = zkutil.RepeatWhile(ctx, policy, mayExist, func() (n Node, err error) {
		n, own, err = h.s.watches.readAndWatch(ctx, h.path)
		if zkutil.IsRefused(err) && mayExist(err) && !hasWarned {
			hasWarned = true
			h.s.Log(refusalLevel(err), "own znode can't be read, will be repeated: no revocations until then", "znode", h.path, "err", err)
		}
		return n, err
	})
	return n, own, err
}

// endAsDeletedLocked ends the hold, whose znode is gone. If trust has run out, the cause is the loss of the
// session, because the servers delete the znodes of a session they end.
func (h *Hold) endAsDeletedLocked() {
	h.endIfUntrustedLocked()
	h.endLocked(zkutil.ErrNodeDeleted)
}

func (h *Hold) noteRevocationLocked() {
	if h.isRevoked {
		return
	}
	h.isRevoked = true
	h.showRevocationLocked()
	if h.revokedDone != nil {
		close(h.revokedDone)
	}
	if listener := h.listenerLocked(); listener != nil {
		listener()
	}
}

// holdLimit is the longest time for which a hold may be used. When it is over, the contexts of the entries end with
// ErrMaxHold. The hold itself stands until its last entry is left, as the znode does: the session keeps it proven, and nobody else
// gets it while the work of its owner still runs. A leader's hold ends at once, because its znode stays until Vacate anyway.
//
// Guarded by Session.mu.
type holdLimit struct {
	at     time.Time   // by the clock of trust; zero: there is no limit
	timer  *time.Timer // nil: there is no limit. Stopped at the end of the hold
	isOver bool        // the contexts have ended
}

// limitLocked limits a new hold. Timers stand still while the machine is suspended, so the entries are also compared with the
// clock of trust.
func (h *Hold) limitLocked(d time.Duration) {
	if d <= 0 {
		return
	}
	h.limit.at = h.s.clock.Now().Add(d)
	h.limit.timer = time.AfterFunc(d, func() {
		h.s.mu.Lock()
		defer h.s.mu.Unlock()
		h.endOverLimitLocked()
	})
}

func (l *holdLimit) stopLocked() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// errorLocked returns ErrMaxHold once the limit is over.
func (l *holdLimit) errorLocked() error {
	if l.isOver {
		return zkutil.ErrMaxHold
	}
	return nil
}

// earlierLocked returns until, or the limit if that is earlier.
func (l *holdLimit) earlierLocked(until time.Time) time.Time {
	if l.at.IsZero() || !until.IsZero() && until.Before(l.at) {
		return until
	}
	return l.at
}

// endedLocked returns why the hold can't be used any more, nil if it can: what came first.
func (h *Hold) endedLocked() error {
	if h.limit.isOver {
		return zkutil.ErrMaxHold
	}
	return h.cause
}

func (h *Hold) endIfOverLimitLocked() {
	if !h.limit.at.IsZero() && !h.s.clock.Now().Before(h.limit.at) {
		h.endOverLimitLocked()
	}
}

// endOverLimitLocked ends the contexts of a hold whose limit is over.
func (h *Hold) endOverLimitLocked() {
	if h.endedLocked() != nil {
		return
	}
	s := h.s
	s.Log(slog.LevelWarn, "lease ended: held for the longest time allowed; the znode stays until the work has returned",
		"path", h.userPath, "token", h.token, "id", h.id(), "held", time.Since(h.grantedAt).Round(time.Millisecond))
	if h.keepsNode {
		h.endLocked(zkutil.ErrMaxHold)
		return
	}
	h.limit.isOver = true
	for _, e := range h.entries {
		e.cancel(zkutil.ErrMaxHold)
		if traced := e.endTracedLocked(zkutil.ErrMaxHold); traced != nil {
			s.report.postTraceLocked(traced.callLeaseEnd)
		}
	}
}
