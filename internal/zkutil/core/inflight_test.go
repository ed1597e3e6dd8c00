package core

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The same requests are in flight as in a plain list, for any requests and answers.
func TestFramesInFlightAreThoseOfAPlainList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var q framesInFlight
	plain := []Frame{}
	for xid := range int32(10_000) {
		switch n := len(plain); {
		case n == 0 || random.IntN(2) == 0:
			q.add(Frame{XID: xid})
			plain = append(plain, Frame{XID: xid})
		case random.IntN(8) == 0:
			i := random.IntN(n)
			q.remove(i)
			plain = slices.Delete(plain, i, i+1)
		default:
			first := 1 + random.IntN(min(n, 3))
			q.removeFirst(first)
			plain = slices.Delete(plain, 0, first)
		}
		require.True(t, slices.Equal(plain, q.all()))
	}
}

// The place of an answered request refers to no receiver, and is used again.
func TestAnsweredFramesLeaveNothingBehind(t *testing.T) {
	var q framesInFlight
	for range 100 {
		q.add(Frame{})
	}
	for xid := range int32(100_000) {
		q.add(Frame{XID: xid})
		q.removeFirst(1)
	}
	require.Less(t, cap(q.frames), 1000)
	for _, f := range q.frames[:q.answered] {
		require.Zero(t, f)
	}
}

// Requests leave their room to the next ones when it is used up, with any requests in flight.
func TestRoomForRequestsIsUsedAgain(t *testing.T) {
	var q framesInFlight
	next, first := int32(0), int32(0)
	for range 4 {
		q.add(Frame{XID: next})
		next++
	}
	for range 1000 {
		q.add(Frame{XID: next})
		next++
		if len(q.all()) > 1 {
			q.removeFirst(1)
			first++
		}
		for i, f := range q.all() {
			require.Equal(t, first+int32(i), f.XID) //nolint:gosec // few
		}
	}
}
