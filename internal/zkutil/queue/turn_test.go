package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each key completes "a waiter …".
func TestNextStep(t *testing.T) {
	atListing, near := position{}, position{turn: turnNear}
	afterAll, afterBlocker := position{turn: turnAfterAll}, position{turn: turnAfterBlocker}
	// behind is a waiter that watches its blocker.
	behind := func(p position, change func(s *sight)) sight {
		s := sight{isListed: true, hasBlocker: true, mayWait: true, position: p, blocker: standing}
		if change != nil {
			change(&s)
		}
		return s
	}
	for name, test := range map[string]struct {
		sight
		want step
	}{
		"lists the queue first":                       {sight{mayWait: true}, stepList},
		"lists the queue without its session":         {behind(afterBlocker, func(s *sight) { s.isOver = true }), stepList},
		"claims its turn without a blocker":           {sight{isListed: true}, stepClaim},
		"that may not wait is refused":                {sight{isListed: true, hasBlocker: true}, stepRefuse},
		"watches its blocker":                         {behind(atListing, func(s *sight) { s.blocker = unwatched }), stepWatch},
		"waits for its blocker":                       {behind(atListing, nil), stepWait},
		"waits also if it knows its znode":            {behind(afterBlocker, func(s *sight) { s.own = standing }), stepWait},
		"watches its blocker on another connection":   {behind(afterAll, func(s *sight) { s.isReconnected, s.blocker, s.own = true, changed, changed }), stepWatchAgain},
		"that is next lists on another connection":    {behind(near, func(s *sight) { s.isReconnected, s.blocker = true, changed }), stepList},
		"lists behind a far blocker on another one":   {behind(afterAll, func(s *sight) { s.isReconnected, s.blocker, s.own = true, gone, changed }), stepList},
		"lists behind its blocker on another one":     {behind(afterBlocker, func(s *sight) { s.isReconnected, s.blocker, s.own = true, gone, standing }), stepList},
		"lists if the watch on its blocker is lost":   {behind(afterBlocker, func(s *sight) { s.blocker, s.own = changed, standing }), stepList},
		"lists if its own znode changed":              {behind(afterAll, func(s *sight) { s.own = changed }), stepList},
		"lists if its own znode is deleted":           {behind(afterAll, func(s *sight) { s.own = gone }), stepList},
		"lists behind its blocker":                    {behind(atListing, func(s *sight) { s.blocker, s.own, s.wasFirst = gone, standing, true }), stepList},
		"lists behind a blocker not known as first":   {behind(afterAll, func(s *sight) { s.blocker, s.own = gone, standing }), stepList},
		"claims its turn behind the only blocker":     {behind(afterBlocker, func(s *sight) { s.blocker, s.own = gone, standing }), stepClaim},
		"claims its turn behind a hold":               {behind(afterAll, func(s *sight) { s.blocker, s.own, s.wasFirst = gone, standing, true }), stepClaim},
		"reads its znode behind a hold":               {behind(afterAll, func(s *sight) { s.wasFirst = true }), stepReadOwn},
		"reads its znode behind the end of a hold":    {behind(afterAll, func(s *sight) { s.blocker, s.wasFirst = gone, true }), stepReadOwn},
		"that has to list does not read its znode":    {behind(atListing, func(s *sight) { s.wasFirst = true }), stepWait},
		"lists behind its blocker without its znode":  {behind(afterBlocker, func(s *sight) { s.blocker = gone }), stepList},
		"lists if its own znode was deleted before":   {behind(afterBlocker, func(s *sight) { s.blocker, s.own = gone, gone }), stepList},
		"lists if its own znode changed before":       {behind(afterAll, func(s *sight) { s.blocker, s.own, s.wasFirst = gone, changed, true }), stepList},
		"that has no own watch waits for its blocker": {behind(afterBlocker, nil), stepWait},
	} {
		require.Equal(t, test.want, test.next(), "a waiter %s", name)
	}
}

func TestIsFirst(t *testing.T) {
	first, behind := position{isFirst: true}, position{isBehind: true}
	require.True(t, sight{position: first}.isFirst())
	require.False(t, sight{position: behind}.isFirst())
	require.True(t, sight{position: behind, hasBlocker: true}.isFirst(), "the blocker of one that is directly behind was the first")
	require.False(t, sight{position: first, hasBlocker: true}.isFirst())
}

// everySight calls f with each value of a sight.
func everySight(f func(s sight)) {
	for n := range 1 << 14 {
		has := func(bit int) bool { return n>>bit&1 == 1 }
		f(sight{
			isListed: has(0), hasBlocker: has(1), mayWait: has(2), isOver: has(3), isReconnected: has(4), wasFirst: has(5),
			position: position{isBehind: has(6), isFirst: has(7), turn: turn(n >> 8 & 3)},
			blocker:  seen(n >> 10 & 3), own: seen(n >> 12 & 3),
		})
	}
}

// A waiter claims its turn exactly under the conditions of next. A waiter waits only while every change that requires another step wakes it
// (waiter.await). No step repeats itself without a change.
func TestEveryStepHasItsConditions(t *testing.T) {
	chosen := map[step]int{}
	everySight(func(s sight) {
		isCurrent := s.isListed && !s.isOver
		isWaiter := isCurrent && s.hasBlocker && s.mayWait
		isFirstKnown := s.position.hasOnlyBlocker() || s.wasFirst
		mayClaim := isCurrent && !s.hasBlocker ||
			isWaiter && !s.isReconnected && s.blocker == gone && s.position.needsNoListing() && isFirstKnown && s.own == standing
		next, isRight := s.next(), true
		switch next {
		case stepList: // a list is never wrong, only slow
		case stepRefuse:
			isRight = isCurrent && s.hasBlocker && !s.mayWait
		case stepWatch:
			isRight = isWaiter && s.blocker == unwatched
		case stepWatchAgain:
			isRight = isWaiter && s.isReconnected && !s.position.isTurnNear() && (s.blocker == standing || s.blocker == changed)
		case stepReadOwn:
			isRight = isWaiter && !s.isReconnected && s.own == unwatched && s.wasFirst && s.position.needsNoListing()
		case stepWait:
			isReadLater := s.own == unwatched && (!s.wasFirst || !s.position.needsNoListing())
			isRight = isWaiter && !s.isReconnected && s.blocker == standing && (s.own == standing || isReadLater)
		}
		require.True(t, isRight, "step %d of %+v", next, s)
		require.Equal(t, mayClaim, next == stepClaim, "step %d of %+v", next, s)
		chosen[next]++
	})
	require.Len(t, chosen, int(stepClaim)+1, "each step is chosen")
}
