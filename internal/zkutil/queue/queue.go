package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Rule decides which predecessor the contender at index own of a queue waits for. It returns the
// index of that one, or −1 if the contender may proceed.
//
// A rule must not change the queue, and must depend on the contenders before own alone. Once it has
// let own proceed, it must do so for as long as contenders before own only leave: the session grants
// a hold without reading the queue again, because newcomers stand behind. Only with AcquireUnder a
// newcomer stands ahead of contenders that wait for outer, and outer is in the queue as long as one can
// come.
type Rule func(queue []Contender, own int) int

// Exclusive is the rule of a mutex: each contender waits for the one directly ahead.
func Exclusive(_ []Contender, own int) int { return own - 1 }

// Queue is a queue of ephemeral-sequential znodes in one directory. It is immutable and safe for
// concurrent use.
type Queue struct {
	Session  *session.Session
	Recipe   string   // such as "mutex"; with Session and Dir the key of a hold that a context carries
	Name     string   // of the user's, for traces; "": none
	Path     string   // as the user gave it
	Dir      string   // absolute path of the parent, namespace included
	Prefix   string   // of our znodes' names, after the uuid
	Markers  []string // text before the number in the names of contenders
	Data     []byte   // of our znodes; nil: the session's id
	Rule     Rule
	KeepNode bool // the znode of a hold stays when the hold ends, until Candidate.Vacate
	// AlwaysList is for a queue in which a contender can come ahead of a waiter: see AcquireUnder. No
	// waiter is granted without a listing that was made after its predecessor had gone. (One that had none need not list: a contender
	// that comes ahead raises the counter of the directory, as all do.)
	AlwaysList bool
	ShowOwn    bool // Participants returns only contenders with the same prefix

	// The functions below may be nil. They must not block.

	// OnWaiting is called when a waiter has set a watch on its predecessor.
	OnWaiting func()
	// OnJoined is called with the path of a new znode of ours, and with "" when that is given up.
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

func (q *Queue) holdKey() session.HoldKey {
	return session.HoldKey{Session: q.Session, Dir: q.Dir, Recipe: q.Recipe}
}

// Reenter enters the hold that ctx carries for this queue. Both results are nil if ctx carries none.
// If that hold has ended, the error is the cause, because a context that was made for one hold must
// not enter another. If only ctx has ended, the error is an InterruptedError.
func (q *Queue) Reenter(ctx context.Context) (*session.Entry, error) {
	hold := session.HoldOf(ctx, q.holdKey())
	if hold == nil {
		return nil, nil //nolint:nilnil // documented
	}
	var ended error
	if ctx.Err() != nil {
		ended = &InterruptedError{Err: zkutil.Interrupted(ctx, nil)}
	}
	return hold.Enter(ctx, ended)
}

// Refuse returns nil if ctx carries no hold of this queue. Otherwise it returns refusal if the hold
// stands, and the cause of its end if it has ended.
func (q *Queue) Refuse(ctx context.Context, refusal error) error {
	hold := session.HoldOf(ctx, q.holdKey())
	if hold == nil {
		return nil
	}
	_, err := hold.Enter(ctx, refusal)
	return err
}

// BeginAcquisition begins an acquisition for the traces. The caller has to end it, with what the caller of the
// recipe gets.
func (q *Queue) BeginAcquisition(ctx context.Context, isTry bool) *session.Acquisition {
	return q.beginAcquisitionIn(ctx, isTry, 0)
}

// beginAcquisitionIn is BeginAcquisition for a candidate, whose scope the functions of the user are in. It is not
// inlined, because its caller waits for days, and is to keep a small stack.
//
//go:noinline
func (q *Queue) beginAcquisitionIn(ctx context.Context, isTry bool, scope zkutil.Scope) *session.Acquisition {
	return q.Session.BeginAcquisition(ctx, session.AcquireStart{Recipe: q.Recipe, Name: q.Name, Path: q.Path, Try: isTry}, scope)
}

// Acquire waits until it is this call's turn, and returns the hold, entered once. After an error
// its znode is gone or being deleted. If ctx ends first, the error is an InterruptedError.
func (q *Queue) Acquire(ctx context.Context) (*session.Entry, error) {
	return q.AcquireTraced(ctx, true, nil)
}

// TryAcquire is Acquire without the wait for a predecessor. If there is one it deletes its znode,
// waits until that is done, and returns ErrNotAcquired.
func (q *Queue) TryAcquire(ctx context.Context) (*session.Entry, error) {
	return q.AcquireTraced(ctx, false, nil)
}

// AcquireTraced is Acquire or TryAcquire as a part of an acquisition, which the caller ends.
func (q *Queue) AcquireTraced(ctx context.Context, mayWait bool, a *session.Acquisition) (*session.Entry, error) {
	startedAt := time.Now()
	status := newWaitStatus(q, startedAt)
	q.Session.Retain()
	place, err := q.takePlace(ctx, q.Dir, q.bytes(), mayWait)
	if err != nil {
		q.Session.Release()
		return nil, interrupted(ctx, err, WaitStatus{}, startedAt)
	}
	entry, err := q.joinAndWait(ctx, place, mayWait, status)
	if err != nil {
		entry, err = q.joinAgain(ctx, place, mayWait, status, startedAt, err)
	}
	place.End()
	q.Session.Release()
	a.SetAhead(status.ahead)
	return entry, err
}

// joinAgain makes further attempts after one whose contender was lost. It is a function of its own, because
// callers that wait for hours in the first attempt then keep a small stack.
func (q *Queue) joinAgain(
	caller context.Context, place *session.Place, mayWait bool, status *WaitStatus, startedAt time.Time, failure error,
) (*session.Entry, error) {
	ctx, cancel := q.Session.WhileOpen(caller)
	defer cancel()
	policy := q.Session.Retry()
	policy.MaxElapsed = 0 // because the time spent in the queue is no failure
	isLost := func(err error) bool { return errors.Is(err, zkutil.ErrContenderLost) }
	entry, err := zkutil.RepeatAfter(ctx, policy, isLost, failure, func() (*session.Entry, error) {
		return q.joinAndWait(ctx, place, mayWait, status)
	})
	return entry, interrupted(caller, err, *status, startedAt)
}

// joinAndWait makes one attempt: it joins at the tail and waits for the hold. status is kept up to
// date meanwhile, unless it is nil.
func (q *Queue) joinAndWait(ctx context.Context, place *session.Place, mayWait bool, status *WaitStatus) (*session.Entry, error) {
	w := &waiter{q: q, s: q.Session, mayWait: mayWait, status: status}
	if err := q.Session.RunShortTask(ctx, func(ctx context.Context) error { return w.joinTail(ctx, place) }); err != nil {
		return nil, err
	}
	return w.awaitHold(ctx)
}

// joinTail creates the znode of a waiter, which is the last of the queue, reads the queue behind that, unless nobody can be
// ahead, and looks at it. An error of the look is left to awaitHold.
func (w *waiter) joinTail(ctx context.Context, place *session.Place) error {
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
	switch {
	case created.Owner == 0:
	case created.IsAlone:
		w.joined = []Contender{w.self}
	default:
		w.joined = created.List
	}
	q.reportJoined(w.path)
	w.failure, w.hasLooked = w.look(ctx), true
	if w.failure == nil && w.isFirst {
		s.NoteFirst(q.Dir, q.Prefix, w.path, created.Before)
	}
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

// listContenders returns the queue as it was at some moment after the call. The result is shared
// between callers, so it must not be changed. Queues with the same prefix share listings: they must
// have the same markers, because queues with other markers see other contenders.
func (q *Queue) listContenders(ctx context.Context) ([]Contender, error) {
	return session.ListChildren(ctx, q.Session, q.Dir, q.Prefix, q.parse)
}

func (q *Queue) parse(children []string) []Contender { return parseContenders(children, q.Markers) }
