package permits

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// maxJoins bounds the contenders that acquireAll creates at a time.
const maxJoins = 16

// acquireAll acquires either all of n holds or none, without waiting for other contenders. An error that matches
// ErrContenderLost means that a znode of ours is deleted, or our session is over.
func acquireAll(ctx context.Context, q *queue.Queue, reservation *budget.Reservation, n int) ([]*session.Entry, error) {
	entries, failures := make([]*session.Entry, n), make([]error, n)
	slots := make(chan struct{}, maxJoins)
	var joins sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		joins.Go(func() { // ends with its attempt; joined below
			defer func() { <-slots }()
			entries[i], failures[i] = q.JoinAndWait(ctx, reservation, false, nil)
		})
	}
	joins.Wait()
	err := worstOf(failures)
	if err == nil {
		return entries, checkAll(ctx, entries)
	}
	leaveAll(ctx, slices.DeleteFunc(entries, func(entry *session.Entry) bool { return entry == nil }))
	return nil, err
}

// checkAll fails if any of several holds is over, and then leaves the other holds.
func checkAll(ctx context.Context, entries []*session.Entry) error {
	for _, entry := range entries {
		if !entry.Stands() {
			leaveAll(ctx, entries)
			return zkutil.ContenderLost(context.Cause(entry.Context())) //nolint:contextcheck // a hold has a context of its own
		}
	}
	return nil
}

// leaveAll leaves holds, and waits for the deletion of their znodes, for as long as ctx lasts. The deletes are sent before
// leaveAll returns, also after the end of ctx, so that the session's next requests find none of the znodes in their way. A hold
// that was lost earlier counts as left once its znode is deleted. The session logs and repeats deletions that fail.
func leaveAll(ctx context.Context, entries []*session.Entry) {
	leaving := make([]session.Leaving, len(entries))
	for i, entry := range entries {
		leaving[i] = entry.EndWhole()
	}
	for _, l := range leaving {
		_ = l.Await(ctx.Done())
	}
}

// worstOf returns the most informative error: preferably one that no other attempt would change, then a lost contender, then
// ErrNotAcquired.
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
