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

// AcquireUnder acquires a hold in the position of outer, which is an entry of a hold in the same directory: the znode gets the number of
// outer's znode, like Curator's read lock under the write lock. Contenders that have queued behind outer stay behind the new hold when
// outer ends. The new hold has outer's token.
//
// The caller must not leave outer before AcquireUnder has returned. If outer is lost meanwhile, the error is the cause. If ctx ends
// first, the error is an InterruptedError.
func (q *Queue) AcquireUnder(ctx context.Context, outer *session.Entry) (*session.Entry, error) {
	caller, startedAt := ctx, time.Now()
	ctx, cancel := q.Session.WhileOpen(ctx)
	defer cancel()
	q.Session.Retain()
	defer q.Session.Release()
	place, err := q.Session.Budget().ReserveAhead(q.Dir, q.ZnodeBytes()) // callers that wait for a place may wait for outer
	if err != nil {
		return nil, err
	}
	defer place.End()
	isLost := func(err error) bool { return errors.Is(err, zkutil.ErrContenderLost) && outer.Loss() == nil }
	entry, err := zkutil.RepeatWhile(ctx, q.Session.Config().Retry, isLost, func() (*session.Entry, error) {
		return q.joinUnder(ctx, place, outer)
	})
	if loss := outer.Loss(); err != nil && loss != nil {
		return nil, loss
	}
	return entry, Interrupted(caller, err, WaitStatus{}, startedAt)
}

// joinUnder creates a znode with the number of outer's znode, and makes it a hold.
//
// A listing with both znodes shows that outer's znode existed at the creation of the new znode. So each contender that lists the queue
// after outer's end finds the new znode ahead. Without such a listing, the new znode might have come after the grant of a contender
// behind outer.
func (q *Queue) joinUnder(ctx context.Context, place *budget.Reservation, outer *session.Entry) (*session.Entry, error) {
	s := q.Session
	_, outerName := zkutil.Split(outer.Path())
	number, _ := sequenceOf(outerName, q.Markers)
	path, err := s.CreateProtectedAs(ctx, place, q.Dir, q.Prefix+number, q.data())
	if errors.Is(err, zk.ErrNoNode) {
		return nil, zkutil.ErrNodeDeleted // the directory is gone, and outer's znode with it
	}
	if err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	queue, err := session.Repeat(ctx, s, func() ([]Contender, error) { return q.ListContenders(ctx) })
	if errors.Is(err, zk.ErrNoNode) || err == nil && !slices.ContainsFunc(queue, func(c Contender) bool { return c.Name == outerName }) {
		err = zkutil.ErrNodeDeleted // of outer: another attempt would find the same, and outer may not know for a while
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
