package inspect

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// readSemaphore reads a semaphore at a path whose child "leases" exists. It returns false if the
// children do not look like a semaphore's: other programs may use these names, too.
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
	permits, err := r.readNodes(ctx, zkutil.Join(full, partLeases), leases, r.limit)
	if err != nil {
		return Queue{}, false, err
	}
	rest := r.limit
	if rest >= 0 {
		rest = max(0, rest-len(leases))
	}
	waiters, err := r.readNodes(ctx, zkutil.Join(full, partLocks), locks, rest)
	if err != nil {
		return Queue{}, false, err
	}
	return newQueue(path, KindSemaphore, mergePermits(permits, waiters)), true, nil
}

// listPart lists a part of a semaphore. A missing part is empty, because servers remove empty
// containers.
func (r *reader) listPart(ctx context.Context, full, marker string) (contenders []entry, isAll bool, err error) {
	children, err := r.list(ctx, full)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, false, err
	}
	contenders, isAll = parseMarked(children, marker)
	return contenders, isAll, nil
}

// mergePermits returns the contenders of a semaphore, first the permits and then the waiters. The first contender of
// the semaphore's own lock creates the znode of its permit, and keeps the lock until the number of permits is within
// the limit. So the newest permit is not held if it belongs to the session of the lock's first contender and is newer
// than the contender's znode. Such a contender appears once, with the permit's znode.
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
