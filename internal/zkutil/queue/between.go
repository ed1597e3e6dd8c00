package queue

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// When the blocker of a waiter has gone, a list shows whether anybody else is ahead. In a long queue that list is long, and
// nearly all of its names are behind the waiter. If this session has held the lock a few contenders before, only the contenders
// from that hold to the blocker can still be ahead. One request with a short answer asks whether they, and the own znode, are
// there. If one of them is there, the waiter lists the queue.
//
// So a waiter that joins a long queue keeps the names next ahead of its blocker. Later contenders are behind the waiter.

const (
	longQueue = 64 // contenders ahead of the blocker, from which on names are kept: a shorter list costs no more
	maxNear   = 16 // how many names are kept
)

// keepNear keeps the names next ahead of the first blocker that the waiter has. Its later blockers are among these names, or
// further ahead. A candidate keeps none, to save memory: its terms are long, so that a list does not matter.
func (w *waiter) keepNear(queue []Contender, blocker int) {
	if w.near != "" || !w.isNext || !w.mayWait || blocker < longQueue || w.q.KeepNode || !w.s.CanFindEach() {
		return
	}
	var names [maxNear]string
	for i, c := range queue[blocker-maxNear : blocker] {
		names[i] = c.Name
	}
	w.near = strings.Join(names[:], "/") // a copy, because the names of a list share its memory
}

// readBetween asks the server whether a contender is left ahead of the blocker, which has gone, if the answer can show that:
// one of the kept names has to be that of a hold of this session that was the first of the queue. isNobodyLeft also says that
// the own znode is there: see takeTurn. If it is false, for a failed request too, the queue has to be listed.
func (w *waiter) readBetween(ctx context.Context) (isNobodyLeft bool) {
	if w.near == "" || !w.s.CanFindEach() {
		return false
	}
	names := strings.Split(w.near, "/")
	first := slices.Index(names, w.s.LatestFirst(w.q.Dir))
	if first < 0 {
		return false
	}
	var paths []string
	for _, name := range names[first:] {
		paths = append(paths, zkutil.Join(w.q.Dir, name))
	}
	refusals, err := w.s.FindEach(ctx, append(paths, w.path))
	if err != nil || len(refusals) != len(paths)+1 {
		return false
	}
	ahead, own := refusals[:len(paths)], refusals[len(paths)]
	mayBeThere := func(refusal error) bool { return !errors.Is(refusal, zk.ErrNoNode) } // also a znode that may not be read
	return own == nil && !slices.ContainsFunc(ahead, mayBeThere)
}
