package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/znodes"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// acquire acquires the lock for an occurrence. With WithSkip it tries first, and looks for a run in progress only if another contender has
// the lock.
func (o *Once) acquire(ctx context.Context, occurrence string, mayWait bool) (*recipes.Lease, error) {
	byRecord := func(_ context.Context, last Record, occurrence string) error { return o.refusal(last, occurrence) }
	if !o.config.skips {
		return o.acquireUnlessRefused(ctx, occurrence, mayWait, byRecord)
	}
	lease, err := o.acquireUnlessRefused(ctx, occurrence, false, byRecord)
	if ctx.Err() != nil || !errors.Is(err, recipes.ErrNotAcquired) {
		return lease, err
	}
	return o.acquireUnlessRefused(ctx, occurrence, mayWait, o.refusalBehindRun)
}

// refuse returns a *refused if an occurrence must not run, given the latest record, and otherwise nil.
type refuse func(ctx context.Context, last Record, occurrence string) error

// acquireUnlessRefused acquires the lock. It fails as soon as refuse does for the record.
func (o *Once) acquireUnlessRefused(ctx context.Context, occurrence string, mayWait bool, refuse refuse) (*recipes.Lease, error) {
	q := o.base.Queue
	acquisition := q.BeginAcquisition(ctx, !mayWait, 0)
	entry, err := o.acquireEntry(ctx, occurrence, mayWait, refuse, acquisition)
	if refusal, ok := zkutil.AsType[*refused](err); ok { // to the traces it is no failure
		acquisition.Fail(o.base.OpError("do", zkutil.Both(recipes.ErrNotAcquired, refusal.err)))
		return nil, o.base.OpError("do", o.reported(refusal))
	}
	if err = o.base.EndAcquisition(acquisition, "do", false, err, entry...); err != nil {
		return nil, err
	}
	return recipe.NewLease(entry[0]), nil
}

// acquireEntry waits for the lock and watches the record, until it has the lock or the record changes.
func (o *Once) acquireEntry(
	ctx context.Context, occurrence string, mayWait bool, refuse refuse, acquisition *trace.Acquisition,
) ([]*session.Entry, error) {
	startedAt := time.Now()
	status := queue.NewWaitStatus(o.base.Queue, startedAt)
	changed, err := o.watchRecord(status.WarnInOutage(ctx, o.base.Queue), occurrence, refuse)
	if err != nil {
		return nil, queue.Interrupted(ctx, err, queue.WaitStatus{}, startedAt)
	}
	waiting, cancel := context.WithCancelCause(ctx)
	watcherDone := make(chan struct{})
	go func() { // ends with the wait, or when the occurrence must not run; joined below
		defer close(watcherDone)
		o.awaitRefusal(waiting, occurrence, refuse, changed, cancel)
	}()
	entry, err := o.base.Queue.Acquire(waiting, mayWait, acquisition)
	cancel(nil)
	<-watcherDone
	if err != nil { // which has the *refused of the watcher, if that ended the wait
		return nil, err
	}
	return []*session.Entry{entry}, nil
}

// awaitRefusal calls end with a *refused once the occurrence must not run. It returns after the call, or when ctx ends. If the
// record can't be read any more, the holder of the lock will find out.
func (o *Once) awaitRefusal(ctx context.Context, occurrence string, refuse refuse, changed *session.Watch, end context.CancelCauseFunc) {
	s := o.base.Queue.Session
	for {
		select {
		case <-changed.Fired():
		case <-ctx.Done():
			s.ReleaseWatch(changed)
			return
		}
		s.ReleaseWatch(changed)
		var err error
		if changed, err = o.watchRecord(ctx, occurrence, refuse); err != nil {
			if refusal, ok := err.(*refused); ok { //nolint:errorlint // never wrapped
				end(refusal)
			}
			return
		}
	}
}

// watchRecord returns a watch on the record, which has to be released, or a *refused if the occurrence must not run. It creates
// the znode if it is missing.
func (o *Once) watchRecord(ctx context.Context, occurrence string, refuse refuse) (*session.Watch, error) {
	s := o.base.Queue.Session
	ctx, cancel := s.WhileOpen(ctx)
	defer cancel()
	for {
		isOutdated := o.starts.beginRead()
		node, changed, err := znodes.ReadAndWatch(ctx, s, o.record)
		if errors.Is(err, zk.ErrNoNode) {
			if err := znodes.Create(ctx, s, o.record, []byte{}); err != nil {
				return nil, fmt.Errorf("create the record: %w", err)
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the record: %w", err)
		}
		last, err := o.decode(node.Data)
		mustWait := err == nil && isOutdated(last)
		if err == nil && !mustWait {
			err = refuse(ctx, last, occurrence)
		}
		if err == nil && !mustWait {
			return changed, nil
		}
		s.ReleaseWatch(changed)
		if err == nil {
			err = o.awaitStart(ctx, last)
		}
		if err != nil {
			return nil, err
		}
	}
}
