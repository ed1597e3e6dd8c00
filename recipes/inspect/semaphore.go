package inspect

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// readSemaphore reads a semaphore at a path whose child "leases" exists. It reports false if the
// children are not those of a semaphore: other programs may use these names as well.
func (r *reader) readSemaphore(ctx context.Context, path string, hasLocks bool) (q Queue, isSemaphore bool, err error) {
	full := r.fullPath(path)
	leases, onlyLeases, err := r.listPart(ctx, zkutil.Join(full, partLeases), markerLease)
	if err != nil {
		return Queue{}, false, err
	}
	locks, onlyLocks := []entry(nil), false
	if hasLocks {
		if locks, onlyLocks, err = r.listPart(ctx, zkutil.Join(full, partLocks), "lock-"); err != nil {
			return Queue{}, false, err
		}
	}
	if len(leases) == 0 && (!onlyLeases || !onlyLocks) {
		return Queue{}, false, nil
	}
	permits, err := r.readNodes(ctx, zkutil.Join(full, partLeases), leases)
	if err != nil {
		return Queue{}, false, err
	}
	waiters, err := r.readNodes(ctx, zkutil.Join(full, partLocks), locks)
	if err != nil {
		return Queue{}, false, err
	}
	return newQueue(path, KindSemaphore, mergePermits(permits, waiters)), true, nil
}

// listPart lists a part of a semaphore. A missing one is empty: servers remove empty containers.
func (r *reader) listPart(ctx context.Context, full, marker string) (contenders []entry, isAll bool, err error) {
	children, err := r.list(ctx, full)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, false, err
	}
	contenders, isAll = parseMarked(children, marker)
	return contenders, isAll, nil
}

// mergePermits returns the contenders of a semaphore: the permits, and then those who wait. The first
// of the semaphore's own lock makes the znode of its permit, and keeps the lock until there are few
// enough. So the newest permit is not held if it belongs to the session of that first one and is
// newer than its znode. That contender appears once, with the permit's znode.
func mergePermits(permits, waiters []node) []node {
	for i := range permits {
		permits[i].holds = true
	}
	if len(permits) > 0 && len(waiters) > 0 {
		newest, first := &permits[len(permits)-1], waiters[0]
		if newest.stat.EphemeralOwner == first.stat.EphemeralOwner && newest.stat.Czxid > first.stat.Czxid {
			newest.holds = false
			waiters = waiters[1:]
		}
	}
	return append(permits, waiters...)
}
