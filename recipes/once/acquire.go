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
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// acquireUnlessDone acquires the lock. It returns a *DoneError once the record shows that the occurrence is done.
func (o *Once) acquireUnlessDone(ctx context.Context, occurrence string, mayWait bool) (*recipes.Lease, error) {
	q := o.base.Queue
	acquisition := q.BeginAcquisition(ctx, !mayWait)
	entry, err := o.acquireEntry(ctx, occurrence, mayWait, acquisition)
	if done, ok := zkutil.AsType[*DoneError](err); ok { // to the traces it is no failure
		acquisition.Fail(o.base.OpError("do", zkutil.Both(recipes.ErrNotAcquired, done)))
		return nil, o.base.OpError("do", done)
	}
	if err = o.base.EndAcquisition(acquisition, "do", false, err, entry...); err != nil {
		return nil, err
	}
	return recipe.NewLease(entry[0]), nil
}

// acquireEntry waits for the lock and watches the record, until either comes.
func (o *Once) acquireEntry(ctx context.Context, occurrence string, mayWait bool, acquisition *session.Acquisition) ([]*session.Entry, error) {
	startedAt := time.Now()
	changed, err := o.watchRecord(ctx, occurrence)
	if err != nil {
		return nil, queue.Interrupted(ctx, err, queue.WaitStatus{}, startedAt)
	}
	waiting, cancel := context.WithCancelCause(ctx)
	watcherDone := make(chan struct{})
	go func() { // ends with the wait, or when the occurrence is done; joined below
		defer close(watcherDone)
		o.awaitDone(waiting, occurrence, changed, cancel)
	}()
	entry, err := o.base.Queue.AcquireTraced(waiting, mayWait, acquisition)
	done, isDone := zkutil.AsType[*DoneError](zkutil.CauseOf(waiting))
	cancel(nil)
	<-watcherDone
	switch {
	case err != nil && isDone:
		return nil, done
	case err != nil:
		return nil, err
	}
	return []*session.Entry{entry}, nil
}

// awaitDone calls end with a *DoneError once the occurrence is done. It returns after the call, or when ctx ends. If the record
// can't be read any more, the holder of the lock will find out.
func (o *Once) awaitDone(ctx context.Context, occurrence string, changed *session.Watch, end context.CancelCauseFunc) {
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
		if changed, err = o.watchRecord(ctx, occurrence); err != nil {
			if done, ok := zkutil.AsType[*DoneError](err); ok {
				end(done)
			}
			return
		}
	}
}

// watchRecord returns a watch on the record, which has to be released, or a *DoneError if the occurrence is done. It creates
// the znode if it is missing.
func (o *Once) watchRecord(ctx context.Context, occurrence string) (*session.Watch, error) {
	s := o.base.Queue.Session
	ctx, cancel := s.WhileOpen(ctx)
	defer cancel()
	for {
		isOutdated := o.starts.beginRead()
		data, changed, err := s.Persistent().Read(ctx, o.record)
		if errors.Is(err, zk.ErrNoNode) {
			if err := s.Persistent().Create(ctx, o.record, []byte{}); err != nil {
				return nil, fmt.Errorf("create the record: %w", err)
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the record: %w", err)
		}
		last, err := o.decode(data)
		mustWait := err == nil && isOutdated(last)
		if err == nil && !mustWait && o.isDone(last, occurrence) {
			err = &DoneError{Occurrence: occurrence, Last: last}
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
