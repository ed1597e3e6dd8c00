package queue

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// ZnodeBytes returns the bytes that a znode of ours takes from the budget of the session.
func (q *Queue) ZnodeBytes() int { return session.BytesOf(q.Dir, q.Prefix) }

// TakePlace reserves a place in the budget of the session for contenders of so many bytes. A caller that may wait does so inside
// this process, without a znode, behind all earlier callers.
func (q *Queue) TakePlace(ctx context.Context, bytes int, mayWait bool) (*budget.Reservation, error) {
	switch {
	case ctx.Err() != nil:
		return nil, zkutil.EndOf(ctx)
	case mayWait:
		return q.Session.Reserve(ctx, q.Dir, bytes)
	default:
		return q.Session.Budget().TryReserve(q.Dir, bytes)
	}
}

// AcquireInPlace is Acquire with a place that the caller has reserved, or nil if the caller has none. AcquireInPlace ends the place.
func (q *Queue) AcquireInPlace(ctx context.Context, place *budget.Reservation) (*session.Entry, error) {
	if place == nil {
		return q.Acquire(ctx)
	}
	defer place.End()
	startedAt := time.Now()
	status := NewWaitStatus(q, startedAt)
	q.Session.Retain()
	defer q.Session.Release()
	entry, err := q.JoinAndWait(ctx, place, true, status)
	if err != nil {
		entry, err = q.joinAgain(ctx, place, true, status, startedAt, err)
	}
	return entry, err
}
