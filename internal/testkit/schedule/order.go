package schedule

import (
	"path"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// queue returns the paths of the contenders in the server's order.
func (j *referee) queue() []string { return j.queueIn(j.recipe.dirs()[0]) }

// queueIn returns the paths of the contenders in a directory, in the server's order.
func (j *referee) queueIn(dir string) []string {
	return slices.DeleteFunc(bubble.Queue(j.srv, dir), func(znode string) bool { return !isContender(path.Base(znode)) })
}

// isContender reports whether a child of the lock is a contender, and not the record of package once.
func isContender(name string) bool { return len(name) > 10 }

// numberOf returns the sequence number at the end of a name.
func numberOf(name string) string { return name[len(name)-10:] }

// aheadLocked returns the path of a contender for which the contender at path has to wait, "" if path need not wait.
func (j *referee) aheadLocked(path string) string {
	isShared := j.isShared(path)
	for i, other := range j.queue() {
		if i < j.recipe.Limit {
			continue
		}
		if numberOf(other) < numberOf(path) && (!isShared || !j.isShared(other)) && !isTwin(other, path) && !j.isInVainLocked(other) {
			return other
		}
	}
	return ""
}

// isTwin reports whether two contenders come from one create, which was executed twice: for example by a server that was frozen, while
// the client went on in a new session. The client knows both by their uuid, and does not wait for its own znode, which is being deleted.
func isTwin(a, b string) bool {
	uuid := zkutil.ProtectionOf(path.Base(a))
	return uuid != "" && uuid == zkutil.ProtectionOf(path.Base(b))
}

// isInVainLocked reports whether a contender can't be granted the lock: it was created under an exclusive contender of its
// session, whose number it has, and the exclusive contender was deleted just before. The joining client notices, and fails.
func (j *referee) isInVainLocked(path string) bool {
	_, stat, _ := j.srv.Get(path)
	isOuter := func(t *heldLease) bool {
		gone, isDeleted := j.deleted[t.lease.Path()]
		return isDeleted && time.Since(gone) < 2*j.timeout && j.isExclusive(t) && t.c.client.Conn().SessionID() == stat.EphemeralOwner &&
			numberOf(t.lease.Path()) == numberOf(path)
	}
	isHeld := func(t *heldLease) bool { return t.lease.Path() == path }
	return j.isShared(path) && slices.ContainsFunc(j.heldLeases, isOuter) && !slices.ContainsFunc(j.heldLeases, isHeld)
}

// first returns the path of the first contender, "" if the queue is empty.
func (j *referee) first() string {
	if queue := j.queue(); len(queue) > 0 {
		return queue[0]
	}
	return ""
}
