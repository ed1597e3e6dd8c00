package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// CheckLayout returns ErrOtherLayout if dir has a contender of a recipe whose znodes this queue does not see: such a contender
// and ours would not exclude each other. If ctx ends first, the error is an InterruptedError.
func (q *Queue) CheckLayout(ctx context.Context) error {
	caller, startedAt := ctx, time.Now()
	ctx, cancel := q.Session.WhileOpen(ctx)
	defer cancel()
	_, err := session.Repeat(ctx, q.Session, func() (struct{}, error) {
		other, err := session.ListChildren(ctx, q.Session, q.Dir, "layout of "+q.Recipe, q.findOther)
		if err == nil && other != "" {
			err = otherLayout(zkutil.Join(q.Dir, other))
		}
		return struct{}{}, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return Interrupted(caller, err, WaitStatus{}, startedAt)
}

// warnOfOther logs that a list shows a contender of a recipe whose znodes this queue does not see. It is a warning and not an error, because
// this queue ignores every child that is no contender of its own: one stray znode, which any client can make, must not take a lock out of service.
// Curator filters no children, so that such a znode can block its locks.
func (q *Queue) warnOfOther(children []string) {
	if other := q.findOther(children); other != "" && q.Session.MayWarnOf("other layout: "+q.Dir) {
		q.Session.Log(slog.LevelWarn, "another kind of lock uses this path; the two do not exclude each other", "path", q.Path, "znode", zkutil.Join(q.Dir, other))
	}
}

// otherLayout returns ErrOtherLayout for a znode.
func otherLayout(path string) error {
	return fmt.Errorf("%w: %s", zkutil.ErrOtherLayout, zkutil.Printable(path))
}

// findOther returns a child that is a contender of a recipe with other markers, or "" if no child is.
func (q *Queue) findOther(children []string) string {
	i := slices.IndexFunc(children, func(name string) bool {
		_, isOurs := sequenceOf(name, q.Markers)
		return !isOurs && IsContender(name)
	})
	if i < 0 {
		return ""
	}
	return children[i]
}
