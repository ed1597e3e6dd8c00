package once

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/znodes"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// Forget erases the record, so that the path is as before its first occurrence. Call Forget when the latest occurrence was
// started by mistake, or before the format of occurrences changes. An occurrence that was started before can run again
// after Forget, if a host still asks for it.
//
// Forget holds the lock meanwhile. During a run, Forget waits for its end, and fails with a *recipes.WaitError if ctx ends
// first. A Do that waits behind Forget fails, because no record shows any more whether its occurrence ran. The error
// matches ErrRecord if the znode of the record has a content of another program, which is kept, and ErrInvalidArgument for
// a call inside the function of a Do on the same path.
func (o *Once) Forget(ctx context.Context) error {
	if err := o.base.Check("forget"); err != nil {
		return err
	}
	if err := o.base.Queue.Refuse(ctx, errNested); err != nil {
		return o.base.OpError("forget", err)
	}
	acquire := func(ctx context.Context) (*recipes.Lease, error) {
		acquisition := o.base.Queue.BeginAcquisition(ctx, false, 0)
		entry, err := o.base.Queue.Acquire(ctx, true, acquisition)
		if err = o.base.EndAcquisition(acquisition, "forget", false, err, entry); err != nil {
			return nil, err
		}
		return recipe.NewLease(entry), nil
	}
	opError := func(_ string, err error) *recipes.OpError { return o.base.OpError("forget", err) }
	return recipe.Do(ctx, opError, acquire, recipe.EndWork, func(ctx context.Context, lease *recipes.Lease) error {
		if err := o.deleteRecord(ctx, lease); err != nil {
			return o.base.OpError("forget", err)
		}
		return nil
	})
}

// deleteRecord deletes the record, rather than empty it, so that each waiting Do can see it was replaced (see start).
func (o *Once) deleteRecord(ctx context.Context, lease *recipes.Lease) error {
	for {
		node, last, err := o.read(ctx, 0)
		if err != nil || last == (Record{}) {
			return err
		}
		deletion := znodes.Guarded{Guard: lease.Path(), Path: o.record, Deletes: true, Version: node.Stat.Version}
		_, err = znodes.WriteGuarded(ctx, o.base.Queue.Session, deletion)
		if errors.Is(err, zk.ErrNoNode) { // by an attempt whose answer was lost
			return nil
		}
		if !errors.Is(err, zk.ErrBadVersion) {
			return err
		}
	}
}
