package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// maxJoins bounds the contenders that acquireAll creates at a time.
const maxJoins = 16

// acquireAll acquires n holds without waiting for other contenders: all of them, or none. An error that
// matches ErrContenderLost means that a znode of ours is gone, or our session.
func (q *Queue) acquireAll(ctx context.Context, place *session.Place, n int) ([]*session.Entry, error) {
	entries, failures := make([]*session.Entry, n), make([]error, n)
	slots := make(chan struct{}, maxJoins)
	var joins sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		joins.Go(func() { // ends with its attempt; joined below
			defer func() { <-slots }()
			entries[i], failures[i] = q.joinAndWait(ctx, place, false, nil)
		})
	}
	joins.Wait()
	err := worstOf(failures)
	if err == nil {
		return entries, q.checkAll(ctx, entries)
	}
	q.leaveAll(ctx, slices.DeleteFunc(entries, func(entry *session.Entry) bool { return entry == nil }))
	return nil, err
}

// checkAll fails if one of several holds has ended. Then it leaves the others.
func (q *Queue) checkAll(ctx context.Context, entries []*session.Entry) error {
	for _, entry := range entries {
		if !entry.Stands() {
			q.leaveAll(ctx, entries)
			return zkutil.ContenderLost(context.Cause(entry.Context())) //nolint:contextcheck // a hold has a context of its own
		}
	}
	return nil
}

// leaveAll leaves holds, and waits until their znodes are gone, for as long as ctx lasts. The znodes
// are deleted in the background in any case.
func (q *Queue) leaveAll(ctx context.Context, entries []*session.Entry) {
	done := make(chan struct{})
	if !q.Session.Background(func(ctx context.Context) {
		defer close(done)
		var leaving sync.WaitGroup
		for _, entry := range entries {
			leaving.Go(func() { q.leave(ctx, entry) }) // bounded by the operation timeout; joined below
		}
		leaving.Wait()
	}) {
		return // the session has ended the holds
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// worstOf returns the error that says most about why not all have succeeded: one that no other attempt
// would change, or else a lost contender, or else ErrNotAcquired.
func worstOf(failures []error) error {
	isOther := func(err error) bool {
		return err != nil && !zkutil.IsAny(err, zkutil.ErrContenderLost, zkutil.ErrNotAcquired)
	}
	isLost := func(err error) bool { return errors.Is(err, zkutil.ErrContenderLost) }
	isAny := func(err error) bool { return err != nil }
	for _, is := range []func(error) bool{isOther, isLost, isAny} {
		if i := slices.IndexFunc(failures, is); i >= 0 {
			return failures[i]
		}
	}
	return nil
}

// leave leaves a hold, and waits until its znode is gone, also if the hold was lost before: otherwise
// the znode would be in the way of our next contender. A deletion that fails is logged, and repeated.
func (q *Queue) leave(ctx context.Context, entry *session.Entry) {
	if err := entry.Leave(); err == nil || errors.Is(err, zkutil.ErrNodeNotDeleted) {
		return
	}
	limit := time.NewTimer(q.Session.Config().OperationTimeout)
	defer limit.Stop()
	select {
	case <-entry.Vacate():
	case <-limit.C:
	case <-ctx.Done():
	}
}
