package queue

import (
	"context"
	"errors"
	"fmt"
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
			err = fmt.Errorf("%w: %s", zkutil.ErrOtherLayout, zkutil.Printable(zkutil.Join(q.Dir, other)))
		}
		return struct{}{}, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return Interrupted(caller, err, WaitStatus{}, startedAt)
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
