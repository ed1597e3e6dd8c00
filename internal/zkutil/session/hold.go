package session

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/callbacks"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/leftovers"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// Hold is a znode whose contender the rule of its queue lets proceed, for as long as the session is trusted. A Hold counts the entries
// of its owner, and ends with the last entry.
type Hold struct {
	s         *Session
	path      string
	token     int64
	key       HoldKey
	birth     Birth  // of the znode
	noWait    bool   // Leave does not wait until the znode is deleted
	isFirst   bool   // of its queue
	userPath  string // of the lock, as the user gave it
	data      []byte // of the znode at creation; nil: Session.ID
	grantedAt time.Time
	first     Entry
	whole     *Hold          // of which this hold is a part; nil: this hold has its own znode
	onLeft    func() Leaving // of a part: see Entry.Part

	// Guarded by s.mu.
	core        core.Hold          // what exclusion rests on
	isRevoked   bool               // a revocation came
	revokedDone chan struct{}      // closed by a revocation; nil until the channel is asked for
	endReads    context.CancelFunc // ends the reads of the znode; nil: not followed yet
	onRevoked   func()
	limit       holdLimit
	returned    int   // number of works whose functions returned: see NoteReturned
	part        *Hold // the present one; nil: none
	entries     []*Entry
	oneEntry    [1]*Entry // room for entries, mostly a single one
	why         error     // reason of the end for the log: see endForLocked; set when the hold ends
	endedAt     time.Time
	removal     *removal
	slowTimer   *time.Timer // see expectSlowLocked; nil: it is not asked for
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

// WithoutHolds returns a context that is ctx without the holds that ctx carries.
func WithoutHolds(ctx context.Context) context.Context { return withoutHolds{ctx} }

type withoutHolds struct {
	context.Context //nolint:containedctx // a context made from another
}

func (c withoutHolds) Value(key any) any {
	if _, isHold := key.(HoldKey); isHold {
		return nil
	}
	return c.Context.Value(key)
}

// Enter enters the hold again. If the hold ended, the error is the cause. Otherwise, if refusal is not nil,
// the error is refusal. The caller checks ctx for its end, because ctx may be user code, which must not run
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
	if h.core.KeepsNode {
		ctx = leftovers.With(ctx, nil) // calls with a term's context leave nothing to the candidate
	}
	e.hold, e.entered = h, enteredContext{ctx, h}
	e.ctx, e.cancel = context.WithCancelCause(&e.entered)
	h.entries = append(h.entries, e)
	return e
}

// endIfUntrustedLocked ends the hold if trust has run out. The keeper does the same, but late after a pause of
// the process.
func (h *Hold) endIfUntrustedLocked() {
	if h.s.core.IsExpired(&h.core, h.s.clock.Now()) {
		h.ofZnode().endLocked(zkutil.ErrSessionLost)
	}
	h.endIfOverLimitLocked()
}

// endLocked ends the hold: first the contexts of its entries, then the znode. After ErrReleased and ErrClosed the caller has
// to begin the removal.
func (h *Hold) endLocked(cause error) { h.endForLocked(cause, cause) }

// endForLocked is endLocked with another reason for the log.
func (h *Hold) endForLocked(cause, why error) {
	h.endAsLocked(h.s.core.EndNow(cause, h.s.clock.Now()), why)
}

// endAsLocked is endForLocked with the time of the end. core.Session.OnEnd names all ends of a hold. The end of WithMaxHold ends a leader's hold
// here, and otherwise only the contexts of the entries. See holdLimit.
func (h *Hold) endAsLocked(end core.End, why error) {
	if h.core.Cause != nil {
		return
	}
	s := h.s
	s.keeper.retainLocked() // so that the use does not end before the removal begins
	defer s.keeper.releaseLocked()
	fate := s.core.OnEnd(&h.core, end)
	h.why, h.endedAt = why, time.Now()
	if fate == core.IsGone { // by an Exchange, so that the deletion is no loss
		h.why = h.core.Cause
	}
	h.limit.stopLocked()
	h.stopSlowLocked()
	for _, e := range h.entries {
		e.cancel(h.core.Cause)
		if traced := e.endTracedLocked(h.core.Cause); traced != nil {
			s.report.postTrace(traced.CallLeaseEnd)
		}
	}
	if h.whole != nil { // the whole keeps its znode
		if h.whole.part == h {
			h.whole.part = nil
		}
		return
	}
	if h.part != nil {
		h.part.endAsLocked(core.End{Cause: h.core.Cause, Until: end.Until}, h.core.Cause)
	}
	delete(s.holds.byPath, h.path)
	if h.endReads != nil {
		h.endReads()
	}
	if fate != core.Stays {
		h.removal = newRemovalLocked(s, h.path, h.core.Owner)
	}
	switch fate {
	case core.IsGone:
		h.removal.takeLocked(nil, wire.Answer{})
	case core.GoesAtOnce:
		h.removal.goOnLocked(nil)
	case core.Stays, core.GoesLater, core.None:
	}
	h.showEndLocked(end.ProofSentAt)
}

// endTracedLocked records that an entry ended, by a loss if cause is not nil. If the acquisition has no
// other entry left, endTracedLocked returns the acquisition: then the caller has to run CallLeaseEnd, not under
// the lock.
func (e *Entry) endTracedLocked(cause error) *trace.Acquisition {
	a := e.acquisition
	e.acquisition = nil
	if !a.EndLease(cause) {
		return nil
	}
	return a
}

// vacateLocked returns the deletion of the znode of an ended hold, which the caller has to begin, or nil if that began before.
func (h *Hold) vacateLocked() *removal {
	if h.core.IsVacated {
		return nil
	}
	h.removal = newRemovalLocked(h.s, h.path, h.core.Owner)
	h.s.core.OnVacate(&h.core)
	h.s.keeper.tellUseLocked()
	return h.removal
}

// endAllLocked ends all holds of the session. After ErrClosed the caller has to begin the removals.
func (hs *holds) endAllLocked(end core.End) (ended leavings) {
	for _, hold := range hs.byPath {
		hold.endAsLocked(end, end.Cause)
		if hold.removal != nil {
			ended.removals = append(ended.removals, hold.removal)
		}
	}
	return ended
}

// Entry is one acquisition of a hold: the first, or a re-entry.
type Entry struct {
	hold    *Hold
	entered enteredContext
	ctx     context.Context
	cancel  context.CancelCauseFunc
	// Guarded by Session.mu.
	hasLeft     bool
	acquisition *trace.Acquisition // whose LeaseEnd is due; nil: none
}

// enteredContext has the values of a context, and carries a hold. An enteredContext never ends.
type enteredContext struct {
	context.Context //nolint:containedctx // the context that entered

	hold *Hold
}

func (*enteredContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (*enteredContext) Done() <-chan struct{}                   { return nil }
func (*enteredContext) Err() error                              { return nil }

func (c *enteredContext) Value(key any) any {
	if key == c.hold.key {
		return c.hold
	}
	return c.Context.Value(key)
}

// OnRevoked posts fn to order at a revocation, or at once after one.
func (e *Entry) OnRevoked(order *callbacks.Order, fn func()) {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.onRevoked = func() {
		if order.TryPost(fn) {
			h.s.log.NoteLeftOut("revocation listener")
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

// ServersNow returns the earliest and the latest time that the servers' clock may show now. They follow from the ctime of
// the hold's znode and from the time since then, so that a jump of this host's clock does not matter. The server that
// stamped the znode may no longer lead, and the clock of its successor may differ.
func (e *Entry) ServersNow() (earliest, latest time.Time) {
	birth, now := e.hold.birth, e.hold.s.clock.Now()
	ctime := time.UnixMilli(birth.Ctime)
	return ctime.Add(now.Sub(birth.Before)), ctime.Add(now.Sub(birth.After))
}

// Revoked returns a channel that is closed when a peer asks for the hold.
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
	if h.core.Cause != nil {
		return h.s.clock.Local(h.core.Until)
	}
	return h.s.clock.Local(h.limit.earlierLocked(h.s.core.Until()))
}

// Leave gives up the entry. The last entry ends the hold, and deletes the znode unless the claim keeps the
// znode. A second call of Leave returns ErrNotHeld. If the hold ended before, Leave returns the cause.
func (e *Entry) Leave() error { return e.LeaveFor(zkutil.ErrReleased) }

// LeaveFor is Leave with another cause for the end of the entry's context.
func (e *Entry) LeaveFor(cause error) error { return e.beginLeave(cause, cause, nil).Await(nil) }

// Fail is Leave for an owner whose work failed: the log and the traces show the failure, while the context
// ends with ErrReleased.
func (e *Entry) Fail() error {
	return e.beginLeave(zkutil.ErrReleased, zkutil.ErrFailed, nil).Await(nil)
}

// Yield is Leave for a leader that steps down for another candidate; the log says so.
func (e *Entry) Yield() error {
	return e.beginLeave(zkutil.ErrReleased, zkutil.ErrYielded, nil).Await(nil)
}

// BeginLeave is Leave without the wait: when it returns, the deletion of the znode is under way.
func (e *Entry) BeginLeave() Leaving {
	return e.beginLeave(zkutil.ErrReleased, zkutil.ErrReleased, nil)
}

// beginLeave ends the context of the entry with cause. why is for the log. With a batch, which may be nil, the caller begins the deletion.
func (e *Entry) beginLeave(cause, why error, batch *leavings) Leaving {
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
	if h.core.Cause != nil {
		defer s.mu.Unlock()
		if errors.Is(h.core.Cause, zkutil.ErrMaxHold) { // of a leader, whose znode Vacate deletes: nothing was lost
			return Leaving{overLimit: h.core.Cause}
		}
		return Leaving{err: zkutil.Both(overLimit, h.core.Cause)}
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
	removal, isConnected := h.removal, s.core.IsConnected
	s.mu.Unlock()
	var left Leaving
	switch {
	case !isLast:
	case removal != nil:
		if batch == nil {
			removal.begin()
		} else {
			batch.removals = append(batch.removals, removal)
		}
		left = Leaving{removal: removal, beganAt: time.Now()}
	case h.onLeft != nil:
		left = h.onLeft()
	}
	left.overLimit = overLimit
	if h.noWait && left.removal != nil {
		if pending := left; !isConnected {
			s.Background(func(ctx context.Context) { pending.recordUnlessGone(ctx, s.cfg.OperationTimeout) })
		}
		left.removal = nil
	}
	switch {
	case traced == nil:
	case batch != nil:
		batch.traced = append(batch.traced, traced)
	default:
		traced.CallLeaseEnd() // now, when others can have the lock, because the user's function may take long or ask for the lock
	}
	return left
}

// Loss is the cause of the hold's end, nil while the hold stands and after its owner left it. A hold over its
// limit has ErrMaxHold, also after its owner left it.
func (e *Entry) Loss() error {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.core.Cause == nil || errors.Is(h.core.Cause, zkutil.ErrReleased) {
		return h.limit.errorLocked()
	}
	return h.core.Cause
}

// Vacate begins to delete the znode of a hold that ended and was kept. The channel is closed once the znode
// is known to be deleted.
func (e *Entry) Vacate() (done <-chan struct{}) {
	h := e.hold
	h.s.mu.Lock()
	begun := h.vacateLocked()
	if begun != nil {
		h.showVacatedLocked()
	}
	h.s.mu.Unlock()
	if begun != nil {
		begun.begin()
	}
	return h.removal.done
}

// IsGone reports whether the znode is known to be deleted, although Vacate was not called.
func (e *Entry) IsGone() bool {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.s.core.IsZnodeGone(&h.core)
}

// Stands reports whether the hold stands and the entry is not left.
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
// has one part at a time. The caller asks for the next part when onLeft is called.
//
// maxHold is the limit of the part, 0 for none. With noWait, Leave of the part does not wait. onLeft is called under no lock when the last entry of the part is left, unless the whole was
// lost before. Leave waits for what it returns. If the whole ended, the error of Part is the cause.
func (e *Entry) Part(ctx context.Context, maxHold time.Duration, noWait bool, onLeft func() Leaving) (*Entry, error) {
	h, s := e.hold, e.hold.s
	s.mu.Lock()
	defer s.mu.Unlock()
	h.endIfUntrustedLocked()
	if h.core.Cause != nil {
		return nil, h.core.Cause
	}
	h.part = &Hold{
		s: s, core: core.NewPart(), path: h.path, token: h.token, key: h.key, userPath: h.userPath, data: h.data, grantedAt: time.Now(), whole: h, onLeft: onLeft, noWait: noWait,
	}
	h.part.limitLocked(maxHold)
	h.stopSlowLocked() // its owners are those of the parts
	h.part.expectSlowLocked(0)
	return h.part.enterLocked(ctx, &h.part.first), nil
}

// EndWhole ends the entry's hold with all entries and the part, and begins to delete the znode. The result also
// waits for the deletion of a hold lost before.
func (e *Entry) EndWhole() Leaving {
	h, s := e.hold, e.hold.s
	s.mu.Lock()
	stands := h.core.Cause == nil
	h.endLocked(zkutil.ErrReleased)
	removal := h.removal
	s.mu.Unlock()
	if stands {
		removal.begin()
	}
	return Leaving{removal: removal, beganAt: time.Now()}
}

// ofZnode returns the hold that has the znode: for a part, the whole.
func (h *Hold) ofZnode() *Hold {
	if h.whole != nil {
		return h.whole
	}
	return h
}

// Revocation is the text that a peer writes into a contender's znode to ask for the lease, the same as
// Curator's.
const Revocation = "__REVOKE__"

// IsRevocation reports whether the data of a contender's znode asks for the lease. A request to yield keeps the data from before behind a line
// of its own (see queue.Yield).
func IsRevocation(data []byte) bool {
	return string(data) == Revocation || bytes.HasSuffix(data, []byte("\n"+Revocation))
}

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
	timer   *time.Timer // runs while claimed is not empty; some holds in claimed may be over
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

// followYoung follows the holds that lasted for WatchOwnAfter.
func (hs *holds) followYoung() {
	s := hs.s
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &hs.young
	young := n.claimed[:0]
	for _, c := range n.claimed {
		switch {
		case c.hold.core.Cause != nil:
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
// elsewhere. See watches.fire.
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
		if IsRevocation(n.Data) {
			h.noteRevocationLocked()
		}
		s.mu.Unlock()
	}
}

// readOwn repeats the read of the znode until success, until the znode is deleted, or until the hold ends. It
// tries at least as often as heartbeats are sent, because while the znode can't be read nothing else detects a
// deletion.
func (h *Hold) readOwn(ctx context.Context) (n Node, own *Watch, err error) {
	hasWarned := false
	policy, period := h.s.cfg.Retry.Patient(), h.s.BeatPeriod()
	policy.InitialInterval, policy.MaxInterval = min(policy.InitialInterval, period), min(policy.MaxInterval, period)
	mayExist := func(err error) bool { return !errors.Is(err, zk.ErrNoNode) }
	n, err = zkutil.RepeatWhile(ctx, policy, mayExist, func() (n Node, err error) {
		n, own, err = h.s.ReadAndWatch(ctx, h.path)
		if zkutil.IsRefused(err) && mayExist(err) && !hasWarned {
			hasWarned = true
			h.s.log.Log(refusalLevel(err), "can't read own znode; retrying (no revocations until then)", "znode", h.path, "err", err)
		}
		return n, err
	})
	return n, own, err
}

// endAsDeletedLocked ends the hold, whose znode is deleted. If trust is used up, the cause is the loss of the
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
	listener := h.onRevoked
	if h.part != nil {
		listener = h.part.onRevoked
	}
	if listener != nil {
		listener()
	}
}
