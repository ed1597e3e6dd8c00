package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// AcquireUnder acquires a hold in the position of outer, which is an entry of a hold in the same directory. The new znode gets the
// number of outer's znode, like Curator's read lock under the write lock. Contenders queued behind outer stay behind the new hold when
// outer ends. The new hold has outer's token.
//
// The caller must not leave outer before AcquireUnder returns. If outer is lost meanwhile, the error is the cause. If ctx ends
// first, the error is an InterruptedError.
func (q *Queue) AcquireUnder(ctx context.Context, outer *session.Entry) (*session.Entry, error) {
	caller, startedAt := ctx, time.Now()
	ctx, cancel := q.Session.WhileOpen(ctx)
	defer cancel()
	q.Session.Retain()
	defer q.Session.Release()
	reservation, err := q.Session.Budget().ReserveAhead(q.Dir, q.ZnodeBytes()) // callers that wait for bytes may wait for outer
	if err != nil {
		return nil, err
	}
	defer reservation.End()
	isLost := func(err error) bool { return errors.Is(err, zkutil.ErrContenderLost) && outer.Loss() == nil }
	entry, err := zkutil.RepeatWhile(ctx, q.Session.Config().Retry, isLost, func() (*session.Entry, error) {
		return q.joinUnder(ctx, reservation, outer)
	})
	if loss := outer.Loss(); err != nil && loss != nil {
		return nil, loss
	}
	return entry, Interrupted(caller, err, WaitStatus{}, startedAt)
}

// joinUnder creates a znode with the number of outer's znode, and makes it a hold.
//
// A listing with both znodes shows that outer's znode existed at the creation of the new znode. So each contender that lists the queue
// after outer's end finds the new znode ahead. Without such a listing, a contender behind outer might hold the lock already when the
// new znode is created.
func (q *Queue) joinUnder(ctx context.Context, reservation *budget.Reservation, outer *session.Entry) (*session.Entry, error) {
	s := q.Session
	_, outerName := zkutil.Split(outer.Path())
	number, _ := sequenceOf(outerName, q.Markers)
	path, err := q.createNumbered(ctx, reservation, number)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, zkutil.ErrNodeDeleted // the directory was deleted, and outer's znode with it
	}
	if err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	queue, err := session.Repeat(ctx, s, func() ([]Contender, error) { return q.ListContenders(ctx) })
	if errors.Is(err, zk.ErrNoNode) || err == nil && !slices.ContainsFunc(queue, func(c Contender) bool { return c.Name == outerName }) {
		err = zkutil.ErrNodeDeleted // of outer, which may not know for a while. Another attempt would find the same
	}
	if err != nil {
		s.RemoveLater(ctx, path)
		return nil, err
	}
	w := &waiter{q: q, s: s, mayWait: true, outer: outer}
	w.setPath(path)
	q.reportJoined(path)
	return w.awaitHold(ctx)
}

// createNumbered creates a contender of this queue whose number the caller chooses, and returns the path. The directory has to exist.
// The znode takes ZnodeBytes from the reservation. A failed create leaves nothing behind:
//
//   - After a lost answer, ErrNodeExists means that the create was executed, because no other znode has the uuid. The znode may belong to
//     an expired session, so the caller checks the owner.
//   - A create abandoned by ctx is undone once the outcome is known.
func (q *Queue) createNumbered(ctx context.Context, reservation *budget.Reservation, number string) (string, error) {
	s := q.Session
	path := zkutil.Join(q.Dir, zkutil.Protection+zkutil.NewUUID()+"-"+q.Prefix+number)
	charge, err := reservation.Begin(len(path) + budget.LengthField)
	if err != nil {
		return "", err
	}
	undo := func(ctx context.Context) { // the server may have executed any of the attempts
		s.RemoveInTask(ctx, path)
		charge.End()
		s.RemoveLateCreate(path)
	}
	isUncertain := false // the server may have executed a create
	var latest session.Attempt
	_, err = session.Repeat(ctx, s, func() (struct{}, error) {
		var err error
		latest, err = s.CreateEphemeral(ctx, path, q.data(), undo)
		if isUncertain && errors.Is(err, zk.ErrNodeExists) {
			return struct{}{}, nil
		}
		isUncertain = isUncertain || zkutil.IsUnanswered(err)
		return struct{}{}, err
	})
	switch {
	case latest.IsAbandoned: // its undo ends the charge
	case err == nil:
		charge.Bind(path)
	case isUncertain:
		s.CleanUp(ctx, undo)
	default:
		charge.End()
	}
	return path, err
}
