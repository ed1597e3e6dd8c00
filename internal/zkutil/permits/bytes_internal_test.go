package permits

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
)

// The bytes of permits and their turn grow with the number of permits, and never overflow.
func TestBytesOfPermits(t *testing.T) {
	p := &Pool{Turn: &queue.Queue{Dir: "/a/locks", Prefix: "lock-"}, Taken: &queue.Queue{Dir: "/a/leases", Prefix: "lease-"}}
	turn, each := p.Turn.ZnodeBytes(), p.Taken.ZnodeBytes()
	for _, n := range []int{1, 2, 1000} {
		require.Equal(t, turn+n*each, p.bytes(n))
	}
	most := math.MaxInt / each / 2
	require.Equal(t, turn+most*each, p.bytes(most))
	require.Equal(t, math.MaxInt, p.bytes(most+1))
	require.Equal(t, math.MaxInt, p.bytes(math.MaxInt))
}
