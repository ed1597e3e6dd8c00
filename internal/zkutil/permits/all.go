package permits

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// maxJoins bounds the contenders that acquireAll creates at a time.
const maxJoins = 16

// acquireAll acquires n holds without waiting for other contenders: all of them, or none. An error that matches ErrContenderLost means
// that a znode of ours or our session is gone.
func acquireAll(ctx context.Context, q *queue.Queue, place *budget.Reservation, n int) ([]*session.Entry, error) {
	entries, failures := make([]*session.Entry, n), make([]error, n)
	slots := make(chan struct{}, maxJoins)
	var joins sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		joins.Go(func() { // ends with its attempt; joined below
			defer func() { <-slots }()
			entries[i], failures[i] = q.JoinAndWait(ctx, place, false, nil)
		})
	}
	joins.Wait()
	err := worstOf(failures)
	if err == nil {
		return entries, checkAll(ctx, q.Session, entries)
	}
	leaveAll(ctx, q.Session, slices.DeleteFunc(entries, func(entry *session.Entry) bool { return entry == nil }))
	return nil, err
}

// checkAll fails if any of several holds has ended, and then leaves the other holds.
func checkAll(ctx context.Context, s *session.Session, entries []*session.Entry) error {
	for _, entry := range entries {
		if !entry.Stands() {
			leaveAll(ctx, s, entries)
			return zkutil.ContenderLost(context.Cause(entry.Context())) //nolint:contextcheck // a hold has a context of its own
		}
	}
	return nil
}

// leaveAll leaves holds, and waits until their znodes are gone, for as long as ctx lasts. The session deletes the znodes in the background
// in any case.
func leaveAll(ctx context.Context, s *session.Session, entries []*session.Entry) {
	done := make(chan struct{})
	if !s.Background(func(ctx context.Context) {
		defer close(done)
		var leaving sync.WaitGroup
		for _, entry := range entries {
			leaving.Go(func() { leave(ctx, s, entry) }) // bounded by the operation timeout; joined below
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

// worstOf returns the error that says most about the failure: an error that no other attempt would change, or else a lost contender, or
// else ErrNotAcquired.
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

// leave leaves a hold, and waits until its znode is gone, even if the hold was lost earlier: otherwise the znode would be in the way of our
// next contender. The session logs and repeats a deletion that fails.
func leave(ctx context.Context, s *session.Session, entry *session.Entry) {
	if err := entry.Leave(); err == nil || errors.Is(err, zkutil.ErrNodeNotDeleted) {
		return
	}
	limit := time.NewTimer(s.Config().OperationTimeout)
	defer limit.Stop()
	select {
	case <-entry.Vacate():
	case <-limit.C:
	case <-ctx.Done():
	}
}
