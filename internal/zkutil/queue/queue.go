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
// a hold without reading the queue again, because newcomers stand behind.
type Rule func(queue []Contender, own int) int

// Exclusive is the rule of a mutex: each contender waits for the one directly ahead.
func Exclusive(_ []Contender, own int) int { return own - 1 }

// Queue is a queue of ephemeral-sequential znodes in one directory. It is immutable and safe for
// concurrent use.
type Queue struct {
	Session  *session.Session
	Recipe   string   // such as "mutex"; with Session and Dir the key of a hold that a context carries
	Dir      string   // absolute path of the parent, namespace included
	Prefix   string   // of our znodes' names, after the uuid
	Markers  []string // text before the number in the names of contenders
	Data     []byte   // of our znodes; nil: the host's address
	Rule     Rule
	KeepNode bool // the znode of a hold stays when the hold ends, until Candidate.Vacate

	// The functions below may be nil. They must not block.

	// OnWaiting is called when a waiter has set a watch on its predecessor.
	OnWaiting func()
	// OnJoined is called with the path of a new znode of ours, and with "" when that is given up.
	OnJoined func(path string)
	// OnObserveRefused is called when the server refuses to show the leader to Observe: once for
	// all refusals with the same text in a row.
	OnObserveRefused func(err error)
}

// ID returns the data of our znodes as a text.
func (q *Queue) ID() string {
	if q.Data == nil {
		return q.Session.HostAddress()
	}
	return string(q.Data)
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
	var interrupted error
	if ctx.Err() != nil {
		interrupted = &InterruptedError{Err: zkutil.Interrupted(ctx, nil)}
	}
	return hold.Enter(ctx, interrupted)
}

// Acquire waits until it is this call's turn, and returns the hold, entered once. After an error
// its znode is gone or being deleted. If ctx ends first, the error is an InterruptedError.
func (q *Queue) Acquire(ctx context.Context) (*session.Entry, error) { return q.acquire(ctx, true) }

// TryAcquire is Acquire without the wait for a predecessor. If there is one it deletes its znode,
// waits until that is done, and returns ErrNotAcquired.
func (q *Queue) TryAcquire(ctx context.Context) (*session.Entry, error) { return q.acquire(ctx, false) }

func (q *Queue) acquire(ctx context.Context, mayWait bool) (*session.Entry, error) {
	caller, startedAt := ctx, time.Now()
	ctx, cancel := q.Session.WhileOpen(ctx)
	defer cancel()
	defer q.Session.Retain()()
	policy := q.Session.Config().Retry
	policy.MaxElapsed = 0 // because the time spent in the queue is no failure
	isLost := func(err error) bool { return errors.Is(err, zkutil.ErrContenderLost) }
	var status WaitStatus
	entry, err := zkutil.RepeatWhile(ctx, policy, isLost, func() (*session.Entry, error) {
		return q.joinAndWait(ctx, mayWait, &status)
	})
	if err != nil && caller.Err() != nil && errors.Is(err, caller.Err()) {
		err = &InterruptedError{status, time.Since(startedAt), err}
	}
	return entry, err
}

// joinAndWait makes one attempt: it joins at the tail and waits for the hold. status is kept up to
// date meanwhile, unless it is nil.
func (q *Queue) joinAndWait(ctx context.Context, mayWait bool, status *WaitStatus) (*session.Entry, error) {
	var w *waiter
	if err := q.Session.RunShortTask(ctx, func() (err error) {
		w, err = q.joinTail(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	w.status = status
	return w.awaitHold(ctx, mayWait)
}

// joinTail creates a znode of ours, which is the last of the queue.
func (q *Queue) joinTail(ctx context.Context) (*waiter, error) {
	s := q.Session
	path, err := s.CreateProtected(ctx, q.Dir, q.Prefix, []byte(q.ID()))
	if err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	w := q.newWaiter(path)
	isExhausted, isRunningOut := checkSequence(w.self.sequence)
	if isRunningOut {
		s.Log(slog.LevelWarn, "sequence numbers are running out: remove the parent znode while nobody uses it", "path", q.Dir, "znode", path)
	}
	if isExhausted {
		s.RemoveLater(ctx, path)
		return nil, zkutil.ErrSequenceExhausted
	}
	return w, nil
}

func (q *Queue) reportJoined(path string) {
	if q.OnJoined != nil {
		q.OnJoined(path)
	}
}

// listContenders returns the queue as it was at some moment after the call. The result is shared
// between callers, so it must not be changed. Queues with the same prefix share listings: they must
// have the same markers, because queues with other markers see other contenders.
func (q *Queue) listContenders(ctx context.Context) ([]Contender, error) {
	return session.ListChildren(ctx, q.Session, q.Dir, q.Prefix, func(children []string) []Contender {
		return parseContenders(children, q.Markers)
	})
}
