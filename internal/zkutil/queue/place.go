package queue

import (
	"context"
	"math"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// bytes is what a znode of ours costs the budget of the session.
func (q *Queue) bytes() int { return session.BytesOf(q.Dir, q.Prefix) }

// takePlace takes a place for contenders in dir. One that may wait does so inside this process, without a
// znode, behind those who have come before.
func (q *Queue) takePlace(ctx context.Context, dir string, bytes int, mayWait bool) (*session.Place, error) {
	switch {
	case ctx.Err() != nil:
		return nil, zkutil.EndOf(ctx)
	case mayWait:
		return q.Session.AwaitPlace(ctx, dir, bytes)
	default:
		return q.Session.TryPlace(dir, bytes)
	}
}

// joinInPlace is joinAndWait with a place of its own.
func (q *Queue) joinInPlace(ctx context.Context, status *WaitStatus) (*session.Entry, error) {
	place, err := q.takePlace(ctx, q.Dir, q.bytes(), true)
	if err != nil {
		return nil, err
	}
	defer place.End()
	return q.joinAndWait(ctx, place, true, status)
}

// acquireInPlace is Acquire with a place that the caller has already, nil if it has none. It gives the place back.
func (q *Queue) acquireInPlace(ctx context.Context, place *session.Place) (*session.Entry, error) {
	if place == nil {
		return q.Acquire(ctx)
	}
	defer place.End()
	startedAt := time.Now()
	status := newWaitStatus(q, startedAt)
	q.Session.Retain()
	defer q.Session.Release()
	entry, err := q.joinAndWait(ctx, place, true, status)
	if err != nil {
		entry, err = q.joinAgain(ctx, place, true, status, startedAt, err)
	}
	return entry, err
}

// bytes is what n permits and the turn in which they are taken cost. All of it is taken before the turn is, so
// that nobody has a turn and waits for bytes.
func (p *Permits) bytes(n int) int {
	each := p.Taken.bytes()
	if n > math.MaxInt/each/2 {
		return math.MaxInt
	}
	return p.Turn.bytes() + n*each
}
