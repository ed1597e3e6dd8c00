package wire

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The same requests are in flight as in a plain list, whatever is sent and answered.
func TestFramesInFlightAreThoseOfAPlainList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var q framesInFlight
	plain := []sentFrame{}
	for xid := range int32(10_000) {
		switch n := len(plain); {
		case n == 0 || random.IntN(2) == 0:
			q.add(sentFrame{xid: xid})
			plain = append(plain, sentFrame{xid: xid})
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
		q.add(sentFrame{})
	}
	for xid := range int32(100_000) {
		q.add(sentFrame{xid: xid, to: answerChan(nil)})
		q.removeFirst(1)
	}
	require.Less(t, cap(q.frames), 1000)
	for _, f := range q.frames[:q.answered] {
		require.Zero(t, f)
	}
}
