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
)

// Rule decides which predecessor the contender at index own of a queue waits for. A rule returns the index of the predecessor, or
// −1 if the contender may proceed.
//
// A rule must not change the queue, and must depend on the contenders before own alone. It is also asked about the part of a queue
// that begins behind a predecessor, as if those ahead had left. A rule that has let own proceed must do so
// for as long as contenders before own only leave: the session grants a hold without reading the queue again, because newcomers
// join behind. Only AcquireUnder puts a newcomer ahead of contenders that wait for outer, and outer stays in the queue for as long
// as such a newcomer can come.
type Rule func(queue []Contender, own int) int

// Exclusive is the rule of a mutex: each contender waits for the contender directly ahead.
func Exclusive(_ []Contender, own int) int { return own - 1 }

// Queue is a queue of ephemeral-sequential znodes in one directory. A Queue is immutable and safe for concurrent use.
type Queue struct {
	Session *session.Session
	Recipe  string   // such as "mutex"; with Session and Dir the key of a hold that a context carries
	Name    string   // the user's name for the lock, for traces; "": none
	Path    string   // the path that the user gave
	Dir     string   // absolute path of the parent, namespace included
	Prefix  string   // of our znodes' names, after the uuid
	Markers []string // text before the number in the names of contenders; IsContender and recipes/inspect have to know a new one, too
	Data    []byte   // of our znodes; nil: the session's id
	Rule    Rule
	// IsSteered marks a queue whose prefix has a priority: see SteeredPrefix.
	IsSteered bool
	MaxHold   time.Duration // of a hold, whose contexts end then; 0: none
	KeepNode  bool          // the znode of a hold stays when the hold ends, until Entry.Vacate
	// AlwaysList marks a queue in which a contender can come ahead of a waiter: see AcquireUnder. The session grants no waiter
	// without a listing from after the end of its predecessor. (A waiter without a predecessor need not list again: a contender that
	// comes ahead raises the counter of the directory, as all contenders do.)
	AlwaysList bool
	ShowOwn    bool // Participants returns only contenders with the same prefix

	// The functions below may be nil, and must not block.

	// OnWaiting is called when a waiter has set a watch on its predecessor, with ErrNotEphemeral if the predecessor is not
	// ephemeral, else with nil.
	OnWaiting func(lasting error)
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

// Reenter enters the hold that ctx carries for this queue. Both results are nil if ctx carries no such hold. If the hold has ended,
// the error is the cause, because a context that was made for a hold must not enter another hold. If only ctx has ended, the error
// is an InterruptedError.
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
// the recipe gets.
func (q *Queue) BeginAcquisition(ctx context.Context, isTry bool) *session.Acquisition {
	return q.BeginAcquisitionIn(ctx, isTry, 0)
}

// BeginAcquisitionIn is BeginAcquisition for a candidate, whose scope contains the functions of the user.
func (q *Queue) BeginAcquisitionIn(ctx context.Context, isTry bool, scope zkutil.Scope) *session.Acquisition {
	return session.BeginAcquisition(ctx, q.Session, session.AcquireStart{Recipe: q.Recipe, Name: q.Name, Path: q.Path, Try: isTry}, scope)
}

// Acquire blocks until the call's turn comes, and returns the hold, entered once. After an error the znode of the attempt is gone or
// being deleted. If ctx ends first, the error is an InterruptedError.
func (q *Queue) Acquire(ctx context.Context) (*session.Entry, error) {
	return q.AcquireTraced(ctx, true, nil)
}

// TryAcquire is Acquire without the wait for a predecessor. If a predecessor exists, TryAcquire deletes its own znode, waits for
// the end of the deletion, and returns ErrNotAcquired.
func (q *Queue) TryAcquire(ctx context.Context) (*session.Entry, error) {
	return q.AcquireTraced(ctx, false, nil)
}

// AcquireTraced is Acquire or TryAcquire as a part of an acquisition, which the caller has to end.
func (q *Queue) AcquireTraced(ctx context.Context, mayWait bool, a *session.Acquisition) (*session.Entry, error) {
	startedAt := time.Now()
	status := NewWaitStatus(q, startedAt)
	q.Session.Retain()
	place, err := q.TakePlace(ctx, q.ZnodeBytes(), mayWait)
	if err != nil {
		q.Session.Release()
		return nil, Interrupted(ctx, err, WaitStatus{}, startedAt)
	}
	entry, err := q.JoinAndWait(ctx, place, mayWait, status)
	if err != nil {
		entry, err = q.joinAgain(ctx, place, mayWait, status, startedAt, err)
	}
	place.End()
	q.Session.Release()
	a.SetAhead(status.Ahead)
	return entry, err
}

// joinAgain makes further attempts after an attempt whose contender was lost. joinAgain is a separate function, so that callers
// that wait for hours in the first attempt keep a small stack.
func (q *Queue) joinAgain(
	caller context.Context, place *budget.Reservation, mayWait bool, status *WaitStatus, startedAt time.Time, failure error,
) (*session.Entry, error) {
	ctx, cancel := q.Session.WhileOpen(caller)
	defer cancel()
	policy := q.Session.Retry()
	policy.MaxElapsed = 0 // because the time spent in the queue is no failure
	isLost := func(err error) bool { return errors.Is(err, zkutil.ErrContenderLost) }
	entry, err := zkutil.RepeatAfter(ctx, policy, isLost, failure, func() (*session.Entry, error) {
		return q.JoinAndWait(ctx, place, mayWait, status)
	})
	return entry, Interrupted(caller, err, *status, startedAt)
}

// JoinAndWait makes a single attempt: the new contender joins at the tail and waits for the hold. JoinAndWait keeps status up to
// date meanwhile, unless status is nil.
func (q *Queue) JoinAndWait(ctx context.Context, place *budget.Reservation, mayWait bool, status *WaitStatus) (*session.Entry, error) {
	w := &waiter{q: q, s: q.Session, mayWait: mayWait, status: status}
	if err := q.Session.RunShortTask(ctx, func(ctx context.Context) error { return w.joinTail(ctx, place) }); err != nil {
		return nil, err
	}
	return w.awaitHold(ctx)
}

// Resume waits for the turn of a znode that the session has created earlier. First Resume proves the session, however long the proof
// takes. Otherwise the term could be granted on an older proof, and be lost with that proof before the client notices the next
// suspension. The attempts of the retry policy are not counted here, because the policy is for later failures.
func (q *Queue) Resume(ctx context.Context, path string, status *WaitStatus) (*session.Entry, error) {
	s, w := q.Session, &waiter{q: q, s: q.Session, mayWait: true, status: status}
	w.setPath(path)
	_, err := zkutil.RepeatWhile(ctx, s.Retry().Patient(), zkutil.IsTransient, func() (struct{}, error) {
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

// joinTail creates the znode of a waiter at the tail of the queue, reads the queue right behind the create, and looks at the queue.
// An error of the look is left to awaitHold.
func (w *waiter) joinTail(ctx context.Context, place *budget.Reservation) error {
	q, s := w.q, w.s
	created, err := session.CreateAndList(ctx, s, place, q.Dir, q.Prefix, q.data(), q.parse)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	w.setPath(created.Path)
	isExhausted, isRunningOut := checkSequence(w.self.sequence)
	if isRunningOut {
		s.Log(slog.LevelWarn, "sequence numbers are running out: remove the parent znode while nobody uses it", "path", q.Dir, "znode", created.Path)
	}
	if isExhausted {
		s.RemoveLater(ctx, created.Path)
		return zkutil.ErrSequenceExhausted
	}
	w.token, w.owner, w.epoch = created.Token, created.Owner, created.Epoch
	if created.Owner != 0 {
		w.joined = created.List
	}
	q.reportJoined(w.path)
	w.failure, w.hasLooked = w.look(ctx), true
	return nil
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

// ListAndWatch returns the queue, and a watch that fires when a contender has come or gone. The caller has to release the watch.
// ListAndWatch repeats the request under the retry policy.
func (q *Queue) ListAndWatch(ctx context.Context) (contenders []Contender, watch *session.Watch, err error) {
	watch, err = session.Repeat(ctx, q.Session, func() (*session.Watch, error) {
		contenders, watch, err = session.ListAndWatch(ctx, q.Session, q.Dir, q.parse)
		return watch, err
	})
	return contenders, watch, err
}

func (q *Queue) parse(children []string) []Contender { return parseContenders(children, q.Markers) }
