package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// drawn is a random queue of one kind of lock, with what that kind promises.
type drawn struct {
	Queue
	contenders []Contender
	excludes   func(a, b int) bool // whether both must not hold at a time
}

// draw returns a mutex, a read-write lock with readers under their writers, or up to three permits.
func draw(random *rand.Rand) (d drawn) {
	kind, permits := random.IntN(3), 1+random.IntN(3)
	d.AlwaysList = random.IntN(4) == 0
	number := random.IntN(3) * (1 << 30) // the last of these exhausts the counter
	var names []string
	for range 1 + random.IntN(7) {
		marker := ReadWriteMarkers[random.IntN(len(ReadWriteMarkers))]
		if kind == 1 && marker == ReadMarker && random.IntN(3) == 0 && len(names) > 0 {
			number-- // under the contender before, which has to be a writer or a reader under the same writer
		}
		names = append(names, fmt.Sprintf("%c-%s%010d", 'a'+random.IntN(26), marker, number))
		number += 1 + random.IntN(2)
	}
	d.contenders = parseContenders(names, ReadWriteMarkers)
	switch kind {
	case 0:
		d.Rule, d.excludes = Exclusive, func(_, _ int) bool { return true }
	case 1:
		d.Rule, d.excludes = ReadWrite, func(a, b int) bool {
			first, second := d.contenders[a], d.contenders[b]
			return first.sequence != second.sequence && (first.HasMarker(WriteMarker) || second.HasMarker(WriteMarker))
		}
	default:
		d.Rule = func(_ []Contender, own int) int { return max(own-permits, -1) }
		d.excludes = func(a, b int) bool { return b-a >= permits }
	}
	return d
}

// without returns the queue without the contenders in a set, and the new index of own.
func (d *drawn) without(isGone func(i int) bool, own int) (left []Contender, at int) {
	for i, c := range d.contenders {
		if i == own {
			at = len(left)
		}
		if !isGone(i) {
			left = append(left, c)
		}
	}
	return left, at
}

// For any queue, the contenders that the rule lets proceed do not exclude each other, the first of the queue is among them, and each of the
// others has a blocker ahead that excludes it, the nearest.
func TestRulesOfRandomQueues(t *testing.T) {
	random := rand.New(rand.NewPCG(45, 1))
	for range testkit.Shorter(50_000, 5_000) {
		d := draw(random)
		var proceeding []int
		for own := range d.contenders {
			if blocker := d.Rule(d.contenders, own); blocker >= 0 {
				require.Less(t, blocker, own, d.contenders)
				require.True(t, d.excludes(blocker, own), d.contenders)
				for i := blocker + 1; i < own; i++ {
					require.False(t, d.excludes(i, own), d.contenders)
				}
			} else {
				require.False(t, slices.ContainsFunc(proceeding, func(i int) bool { return d.excludes(i, own) }), "%v: %d", d.contenders, own)
				proceeding = append(proceeding, own)
			}
		}
		require.Equal(t, 0, proceeding[0], d.contenders)
	}
}

// For any queue and each of its contenders, the decision whether the end of the blocker is enough agrees with a trial of every set of
// contenders ahead that may leave first.
func TestPositionsInRandomQueues(t *testing.T) {
	random := rand.New(rand.NewPCG(45, 2))
	for range testkit.Shorter(50_000, 5_000) {
		d := draw(random)
		own := random.IntN(len(d.contenders))
		p, blocker := d.positionOf(d.contenders, own)
		require.Equal(t, own == 0, p.isFirst)
		if blocker < 0 {
			continue
		}
		require.Equal(t, blocker == own-1, p.isBehind)
		isEnough := true // for each set of contenders between the blocker and own that may leave
		for set := range 1 << (own - blocker - 1) {
			left, at := d.without(func(i int) bool { return i <= blocker || i < own && set>>(i-blocker-1)&1 > 0 }, own)
			isEnough = isEnough && d.Rule(left, at) < 0
		}
		isOrdered := d.contenders[0].sequence < "2147483647" && !d.AlwaysList
		want := turnAtListing
		switch {
		case isEnough && isOrdered && blocker == 0:
			want = turnAfterBlocker
		case isEnough && isOrdered:
			want = turnAfterAll
		case isEnough && blocker == 0:
			want = turnNear
		}
		require.Equal(t, want, p.turn, "%v: %d", d.contenders, own)
	}
}
