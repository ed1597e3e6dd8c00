package queue

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A request is read as it was written, with any id, and everything else is an id.
func TestRequestsInTheDataOfAContender(t *testing.T) {
	for _, kind := range []YieldKind{YieldToPriority, YieldToTransfer, Stay} {
		for _, id := range []string{"", "web-1", "a\nb", "__YIELD__ priority x\n", "__REVOKE__"} {
			y := Yield{Kind: kind, Target: "_c_x-p5-latch-0000000007", ID: []byte(id)}
			got, ok := ParseYield(y.Encode())
			require.True(t, ok)
			require.Equal(t, y, got)
			require.Equal(t, id, string(idOf(y.Encode())))
		}
	}
	for _, data := range []string{
		"", "web-1", "__YIELD__", "__YIELD__ ", "__YIELD__ priority x", "__YIELD__ priority\nid", "__YIELD__ other x\nid", "__YIELD__  x\nid", " __YIELD__ stay x\nid",
	} {
		y, ok := ParseYield([]byte(data))
		require.False(t, ok, data)
		require.Zero(t, y)
		require.Equal(t, data, string(idOf([]byte(data))))
	}
}

// The priority of a contender is in its name.
func TestPriorityInAName(t *testing.T) {
	const uuid = "_c_01234567-89ab-cdef-0123-456789abcdef-"
	for _, priority := range []int{0, 5, -5, 1_000_000, -1_000_000, math.MaxInt} {
		got, ok := PriorityOf(uuid + SteeredPrefix(priority, "latch-") + "0000000007")
		require.True(t, ok)
		require.Equal(t, priority, got)
	}
	for _, name := range []string{
		uuid + "latch-0000000007", uuid + "p5-latch-000000007", "p5-latch-0000000007", uuid + "p-latch-0000000007", uuid + "p5-0000000007",
		uuid + "p5-latch-0000000007x", uuid + "p" + strconv.Itoa(math.MaxInt) + "0-latch-0000000007",
	} {
		got, ok := PriorityOf(name)
		require.False(t, ok, name)
		if ok {
			require.Zero(t, got)
		}
	}
}
