package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
)

// Rule decides which predecessor the contender at index own of a queue waits for. A rule returns the index of the nearest contender ahead
// that keeps own out, or −1 if the contender may proceed.
//
// A rule must not change the queue, and must depend on the contenders before own alone. A rule that lets own proceed must do so for as long as
// contenders before own only leave, because the session grants a hold without reading the queue again, and newcomers join behind.
// Only AcquireUnder puts a newcomer ahead of contenders that wait for outer, and outer stays in the queue as long as such a
// newcomer can join.
type Rule func(queue []Contender, own int) int

// Exclusive is the rule of a mutex: each contender waits for the contender directly ahead.
func Exclusive(_ []Contender, own int) int { return own - 1 }

// UpTo returns the rule of permits. The first n contenders of the queue do not wait.
func UpTo(n int) Rule {
	return func(_ []Contender, own int) int { return max(own-n, -1) }
}

// ReadWrite is the rule of a read-write lock. A writer waits for the contender directly ahead, a reader for the nearest writer ahead.
// Contenders with the same number are a writer and the readers that its owner acquired under the write lock; such contenders do not
// wait for each other.
func ReadWrite(queue []Contender, own int) int {
	self := queue[own]
	isWriter := self.HasMarker(WriteMarker)
	for i := own - 1; i >= 0; i-- {
		if ahead := queue[i]; (isWriter || ahead.HasMarker(WriteMarker)) && !ahead.HasNumberOf(self) {
			return i
		}
	}
	return -1
}

// Queue is a queue of ephemeral-sequential znodes in one directory. A Queue is immutable and safe for concurrent use.
type Queue struct {
	Session *session.Session
	Recipe  string   // such as "mutex"; with Session and Dir the key of a hold that a context carries
	Name    string   // the user's name for the lock, for traces; "": none
	Path    string   // the path that the user gave
	Dir     string   // absolute path of the parent, namespace included
	Prefix  string   // of our znodes' names, after the uuid
	Markers []string // text before the number in the names of contenders; IsContender and recipes/inspect have to know a new one, too
	Data    []byte   // of our znodes; nil for the session's id
	Rule    Rule
	// IsSteered marks a queue whose prefix has a priority (see SteeredPrefix).
	IsSteered bool
	MaxHold   time.Duration // of a hold, whose contexts end then; 0: none
	SlowHold  time.Duration // after which a hold is logged, unless the client has its own time; 0: never
	KeepNode  bool          // the znode of a hold outlives the hold, until Entry.Vacate
	NoWait    bool          // Entry.Leave returns once the deletion of the znode is sent
	// AlwaysList marks a queue in which a contender can join ahead of a waiter (see AcquireUnder). The session grants a waiter
	// nothing without a listing made after the end of its predecessor. (A waiter without a predecessor need not list again, because
	// a contender that joins ahead raises the counter of the directory, as all contenders do.)
	AlwaysList bool
	ShowOwn    bool // Participants returns only contenders with the same prefix

	// The functions below may be nil, and must not block.

	// OnWaiting is called after a waiter set a watch on its predecessor, with the position of the waiter and the predecessor. why is
	// ErrNotEphemeral if the predecessor is not ephemeral, ErrOtherLayout if it is a contender of another recipe, and otherwise nil.
	OnWaiting func(position int, predecessor Participant, why error)
	// OnJoined is called with the path of a new znode of ours, and with "" when the contender gives the znode up.
	OnJoined func(path string)
	// OnStatus is called in an Acquire or TryAcquire whenever the queue was read.
	OnStatus func(WaitStatus)
	// OnObserveRefused is called when the server refuses to show the leader to Observe: once for
	// all refusals with the same text in a row.
	OnObserveRefused func(err error)
}

// ID returns the data of our znodes as a text.
func (q *Queue) ID() string { return string(q.data()) }

// data returns the data of our znodes.
func (q *Queue) data() []byte {
	if q.Data == nil {
		return q.Session.ID()
	}
	return q.Data
}

// HoldKey returns the key under which a context carries a hold of this queue.
func (q *Queue) HoldKey() session.HoldKey {
	return session.HoldKey{Session: q.Session, Dir: q.Dir, Recipe: q.Recipe}
}

// Reenter enters the hold that ctx carries for this queue. Both results are nil if ctx carries no such hold. If the hold ended, the
// error is the cause, because a context that was made for a hold must not enter another hold. If only ctx ended, the error is an
// InterruptedError.
func (q *Queue) Reenter(ctx context.Context) (*session.Entry, error) {
	hold := session.HoldOf(ctx, q.HoldKey())
	if hold == nil {
		return nil, nil //nolint:nilnil // documented
	}
	var ended error
	if ctx.Err() != nil {
		ended = &InterruptedError{Err: zkutil.Interrupted(ctx, nil)}
	}
	return hold.Enter(ctx, ended)
}

// Refuse returns nil if ctx carries no hold of this queue. Otherwise Refuse returns refusal while the hold is valid, and the cause of
// its end afterwards.
func (q *Queue) Refuse(ctx context.Context, refusal error) error {
	hold := session.HoldOf(ctx, q.HoldKey())
	if hold == nil {
		return nil
	}
	_, err := hold.Enter(ctx, refusal)
	return err
}

// BeginAcquisition begins an acquisition for the traces. The caller has to end the acquisition with the result that the caller of
// the recipe gets. scope is that of a candidate, which contains the functions of the user; 0 for all others.
func (q *Queue) BeginAcquisition(ctx context.Context, isTry bool, scope zkutil.Scope) *trace.Acquisition {
	return q.Session.BeginAcquisition(ctx, trace.Subject{Recipe: q.Recipe, Name: q.Name, Path: q.Path, Try: isTry}, scope)
}

// ZnodeBytes returns the bytes that a znode of ours takes from the budget of the session.
func (q *Queue) ZnodeBytes() int { return session.BytesOf(q.Dir, q.Prefix) }

// Reserve reserves bytes for contenders in the budget of the session. A caller that may wait does so inside
// this process, without a znode, behind all earlier callers.
func (q *Queue) Reserve(ctx context.Context, bytes int, mayWait bool) (*budget.Reservation, error) {
	switch {
	case ctx.Err() != nil:
		return nil, zkutil.EndOf(ctx)
	case mayWait:
		return q.Session.Reserve(ctx, q.Dir, bytes)
	default:
		return q.Session.Budget().TryReserve(q.Dir, bytes)
	}
}

// Acquire blocks until it is the call's turn, and returns the hold, entered once. With mayWait false, it waits for no predecessor. If a
// predecessor exists, Acquire then deletes its own znode, waits for the end of the deletion, and returns ErrNotAcquired. After any error
// the znode of the attempt is deleted or being deleted. If ctx ends first, the error is an InterruptedError. The caller has to end the
// acquisition a, which may be nil.
func (q *Queue) Acquire(ctx context.Context, mayWait bool, a *trace.Acquisition) (*session.Entry, error) {
	startedAt := time.Now()
	q.Session.Retain()
	defer q.Session.Release()
	w, ctx := q.takeFrom(ctx)
	if w != nil {
		return q.acquire(ctx, w.reservation, startedAt, mayWait, a, w)
	}
	reservation, err := q.Reserve(ctx, q.ZnodeBytes(), mayWait)
	if err != nil {
		return nil, Interrupted(ctx, err, WaitStatus{}, startedAt)
	}
	return q.AcquireReserved(ctx, reservation, startedAt, mayWait, a)
}

// AcquireReserved is Acquire after Reserve, for a call that began at startedAt. AcquireReserved ends the reservation.
func (q *Queue) AcquireReserved(
	caller context.Context, reservation *budget.Reservation, startedAt time.Time, mayWait bool, a *trace.Acquisition,
) (*session.Entry, error) {
	return q.acquire(caller, reservation, startedAt, mayWait, a, nil)
}

// acquire is AcquireReserved. joined, unless nil, is the contender of the first attempt, from a basket.
func (q *Queue) acquire(
	caller context.Context, reservation *budget.Reservation, startedAt time.Time, mayWait bool, a *trace.Acquisition, joined *waiter,
) (entry *session.Entry, err error) {
	defer reservation.End()
	status := NewWaitStatus(q, startedAt)
	if joined == nil {
		entry, err = q.JoinAndWait(caller, reservation, mayWait, status)
	} else {
		joined.status = status
		if entry, err = joined.awaitHold(caller); err != nil {
			joined.basket.Leave() // the next attempt may have to wait
		}
	}
	if err != nil {
		ctx, cancel := q.Session.WhileOpen(caller)
		defer cancel()
		policy := q.Session.Config().Retry
		policy.MaxElapsed = 0 // because the time spent in the queue is no failure
		isLost := func(err error) bool { return errors.Is(err, zkutil.ErrContenderLost) }
		entry, err = zkutil.RepeatAfter(ctx, policy, isLost, err, func() (*session.Entry, error) {
			return q.JoinAndWait(ctx, reservation, mayWait, status)
		})
		err = Interrupted(caller, err, *status, startedAt)
	}
	a.SetAhead(status.Ahead)
	return entry, err
}

// JoinAndWait makes a single attempt. The new contender joins at the tail and waits for the hold. Meanwhile JoinAndWait updates
// status, unless status is nil.
func (q *Queue) JoinAndWait(ctx context.Context, reservation *budget.Reservation, mayWait bool, status *WaitStatus) (*session.Entry, error) {
	w := &waiter{q: q, s: q.Session, mayWait: mayWait, status: status}
	if !mayWait {
		w.departures = w.s.NewDepartureWait()
	}
	if err := w.joinTail(status.WarnInOutage(ctx, q), reservation); err != nil {
		return nil, err
	}
	return w.awaitHold(ctx)
}

// Resume waits for the turn of a znode that the session created earlier. It first proves the session, however long the proof takes.
// Otherwise the term could be granted on an older proof, and be lost with that proof before the client notices the next suspension.
// The attempts of the retry policy are not counted here, because the policy is for later failures.
func (q *Queue) Resume(ctx context.Context, path string, status *WaitStatus) (*session.Entry, error) {
	s, w := q.Session, &waiter{q: q, s: q.Session, mayWait: true, status: status}
	w.setPath(path)
	_, err := zkutil.RepeatWhile(ctx, s.Config().Retry.Patient(), zkutil.IsTransient, func() (struct{}, error) {
		if err := s.AwaitConnected(ctx); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, s.Prove(ctx, path)
	})
	if err != nil {
		q.reportJoined("")
		w.leaveQueue(ctx, err)
		return nil, err
	}
	q.reportJoined(path)
	return w.awaitHold(ctx)
}

// joinTail creates the znode of a waiter at the tail of the queue, and reads the queue right behind the create.
func (w *waiter) joinTail(ctx context.Context, reservation *budget.Reservation) error {
	q, s := w.q, w.s
	created, err := session.CreateAndList(ctx, s, reservation, q.Dir, q.Prefix, q.data(), q.parse)
	if errors.Is(err, zkutil.ErrUnsupported) {
		return err // it names the operation, which may be the list
	}
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if w.setCreated(created) {
		s.RemoveLater(ctx, created.Path)
		return zkutil.ErrSequenceExhausted
	}
	q.reportJoined(w.path)
	return nil
}

// setCreated gives a new waiter its znode. isExhausted means that the numbers of the queue have run out.
func (w *waiter) setCreated(created session.Created[[]Contender]) (isExhausted bool) {
	w.setPath(created.Path)
	isExhausted, isRunningOut := checkSequence(w.self.sequence)
	if isRunningOut {
		w.s.Log(slog.LevelWarn, "sequence numbers are running out; remove the parent znode while no client uses it", "path", w.q.Dir, "znode", created.Path)
	}
	w.token, w.owner, w.epoch, w.birth = created.Token, created.Owner, created.Epoch, created.Birth
	if created.Owner != 0 {
		w.joined = created.List
	}
	return isExhausted
}

func (q *Queue) reportJoined(path string) {
	if q.OnJoined != nil {
		q.OnJoined(path)
	}
}

func (q *Queue) reportStatus(status WaitStatus) {
	if q.OnStatus != nil {
		q.OnStatus(status)
	}
}

// ListContenders returns the queue at some moment after the call. Callers share the result and must not change the slice. Queues with
// the same prefix share listings, and must have the same markers, because queues with other markers see other contenders.
func (q *Queue) ListContenders(ctx context.Context) ([]Contender, error) {
	return session.ListChildren(ctx, q.Session, q.Dir, q.Prefix, q.parse)
}

// ListAndWatch returns the queue, and a watch that fires when a contender joins or leaves. The caller has to release the watch.
// ListAndWatch repeats the request under the retry policy.
func (q *Queue) ListAndWatch(ctx context.Context) (contenders []Contender, watch *session.Watch, err error) {
	watch, err = session.Repeat(ctx, q.Session, func() (*session.Watch, error) {
		contenders, watch, err = session.ListAndWatch(ctx, q.Session, q.Dir, q.parse)
		return watch, err
	})
	return contenders, watch, err
}

func (q *Queue) parse(children []string) []Contender {
	contenders := parseContenders(children, q.Markers)
	if len(contenders) < len(children) {
		q.warnOfOther(children)
	}
	return contenders
}
