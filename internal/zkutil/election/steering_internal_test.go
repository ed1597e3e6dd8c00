package election

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
)

// The best candidate asks those of lower priority ahead. Each of the others waits for the next better one, so that the end of a candidate
// wakes one other.
func TestToAsk(t *testing.T) {
	for name, tt := range map[string]struct {
		priorities []int
		own        int
		asked      []int
		blocker    int
	}{
		"first":                             {[]int{5}, 0, nil, -1},
		"no lower priority ahead":           {[]int{5, 3, 2, 4}, 1, nil, -1},
		"directly behind the leader":        {[]int{1, 3}, 1, []int{0}, 0},
		"the leader is not asked yet":       {[]int{1, 2, 0, 3, 1}, 3, []int{1, 2}, 2},
		"behind one of the same priority":   {[]int{1, 3, 3}, 2, nil, 1},
		"ahead of one of the same priority": {[]int{1, 3, 3}, 1, []int{0}, 0},
		"the next better is behind":         {[]int{0, 4, 1, 3, 2, 5}, 2, nil, 4},
		"the next better is ahead":          {[]int{0, 4, 2, 1, 3}, 3, nil, 2},
		"the leader is better, too":         {[]int{3, 0, 1, 2}, 2, nil, 3},
		"the last of equals":                {[]int{0, 2, 2, 1, 2, 3}, 3, nil, 4},
		"behind one without a priority":     {[]int{0, unsteered, 3}, 2, nil, 1},
		"ahead of one without a priority":   {[]int{0, 3, unsteered}, 1, []int{0}, 0},
	} {
		var contenders []queue.Contender
		for i, priority := range tt.priorities {
			prefix := "lock-"
			if priority != unsteered {
				prefix = queue.SteeredPrefix(priority, prefix)
			}
			contenders = append(contenders, queue.Contender{Name: fmt.Sprintf("_c_%036d-%s%010d", i, prefix, i)})
		}
		asked, blocker := toAsk(&queue.Queue{Recipe: "selector"}, contenders, tt.own)
		require.Equal(t, tt.asked, asked, name)
		require.Equal(t, tt.blocker, blocker, name)
	}
}

// contendersOf returns contenders with some priorities, in their order; unsteered stands for none.
func contendersOf(priorities ...int) (contenders []queue.Contender) {
	for i, priority := range priorities {
		prefix := "latch-"
		if priority != unsteered {
			prefix = queue.SteeredPrefix(priority, prefix)
		}
		contenders = append(contenders, queue.Contender{Name: fmt.Sprintf("_c_%036d-%s%010d", i, prefix, i)})
	}
	return contenders
}

const unsteered = -1

// The data of a latch's contender may be changed only while a steered contender stands directly behind it, because Curator's latch would
// take the change for that of a contender ahead. Selectors have no such limit.
func TestWhoseDataMayBeChanged(t *testing.T) {
	contenders := contendersOf(0, unsteered, 0, 0, unsteered)
	for at, want := range []bool{false, true, true, false, false} {
		require.Equal(t, want, mayWrite(&queue.Queue{Recipe: "latch"}, contenders, at), at)
		require.True(t, mayWrite(&queue.Queue{Recipe: "selector"}, contenders, at), at)
	}
	asked, blocker := toAsk(&queue.Queue{Recipe: "latch"}, contendersOf(0, 1, 0, unsteered, 3), 4)
	require.Equal(t, []int{1}, asked, "the one directly ahead of an unsteered contender is not asked")
	require.Equal(t, 1, blocker)
	asked, blocker = toAsk(&queue.Queue{Recipe: "latch"}, contendersOf(0, unsteered, 3), 2)
	require.Empty(t, asked)
	require.Equal(t, 1, blocker)
}

// Of two requests to one contender, a transfer prevails over all but one to the same target, a priority over an earlier priority of another
// contender, and over a stay that does not reach it.
func TestWhichRequestPrevails(t *testing.T) {
	yield := func(kind queue.YieldKind, number int) queue.Yield {
		return queue.Yield{Kind: kind, Target: fmt.Sprintf("_c_%036d-p1-latch-%010d", number, number)}
	}
	const priority, transfer, stay = queue.YieldToPriority, queue.YieldToTransfer, queue.Stay
	for _, tt := range []struct {
		request, earlier queue.Yield
		want             bool
	}{
		{yield(priority, 1), yield(priority, 1), false},
		{yield(priority, 1), yield(priority, 2), true},
		{yield(priority, 1), yield(transfer, 1), false},
		{yield(priority, 1), yield(transfer, 2), false},
		{yield(priority, 1), yield(stay, 2), false},
		{yield(priority, 2), yield(stay, 2), false},
		{yield(priority, 3), yield(stay, 2), true},
		{yield(transfer, 1), yield(priority, 1), false},
		{yield(transfer, 1), yield(priority, 2), true},
		{yield(transfer, 1), yield(transfer, 1), false},
		{yield(transfer, 1), yield(transfer, 2), true},
		{yield(transfer, 1), yield(stay, 1), true},
		{yield(transfer, 1), yield(stay, 2), true},
		{yield(stay, 1), yield(stay, 1), false},
		{yield(stay, 1), yield(stay, 2), true},
		{yield(stay, 1), yield(priority, 1), true},
		{yield(stay, 1), yield(transfer, 2), true},
	} {
		require.Equal(t, tt.want, prevails(tt.request, tt.earlier), "%+v", tt)
	}
}

// A wait ends with any of its channels, its pause or its context.
func TestAwaitAny(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		open, closed := make(chan struct{}), make(chan struct{})
		close(closed)
		wait := func(limit, pause time.Duration, first <-chan struct{}, others ...<-chan struct{}) time.Duration {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			awaitAny(ctx, pause, first, others...)
			return time.Since(start)
		}
		require.Zero(t, wait(time.Hour, 0, closed))
		require.Zero(t, wait(time.Hour, 0, open, closed))
		require.Zero(t, wait(time.Hour, 0, open, open, closed))
		require.Equal(t, time.Second, wait(time.Hour, time.Second, open, open, open))
		require.Equal(t, time.Hour, wait(time.Hour, 0, open), "no pause stands for no limit")
		require.Equal(t, time.Hour, wait(time.Hour, -time.Second, open))
		require.Equal(t, time.Minute, wait(time.Minute, time.Hour, open))
	})
}

// A contender that left or changed meanwhile is no failure, and other refusals name the contender.
func TestRefusedRequests(t *testing.T) {
	for _, err := range []error{nil, zk.ErrNoNode, zk.ErrBadVersion, zkutil.ErrNodeDeleted} {
		require.NoError(t, ignoreGone(err))
	}
	require.Equal(t, zk.ErrNoAuth, ignoreGone(zk.ErrNoAuth))
	err := explainRefusal(zk.ErrNoAuth, "yield", "lock-1")
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.EqualError(t, err, "ask lock-1 to yield: "+zk.ErrNoAuth.Error())
	require.Equal(t, zk.ErrNoServer, explainRefusal(zk.ErrNoServer, "yield", "lock-1"))
	require.NoError(t, explainRefusal(nil, "yield", "lock-1"))
}
