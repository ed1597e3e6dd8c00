package permits

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
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

// A request that the limit forbids waits in its turn only with a limit of 0, at which no other request fits either.
func TestWhichRequestsWaitInTheirTurn(t *testing.T) {
	for _, test := range []struct {
		n, limit int
		mayWait  bool
		isAbove  bool
		waits    bool
	}{
		{1, 1, true, false, true},
		{1, 1, false, false, false},
		{2, 3, true, false, true},
		{3, 3, true, false, true},
		{4, 3, true, true, false},
		{4, 3, false, true, false},
		{1, 0, true, true, true},
		{1, 0, false, true, false},
	} {
		for ahead, want := range map[int]int{0: 5, 2: 2} {
			status := &queue.WaitStatus{Ahead: ahead}
			status.SetHolder(queue.Participant{Path: "/a"})
			err := recordMissing(test.n, 5, test.limit, test.mayWait, status)
			require.Equal(t, test.waits, err == nil, "%+v", test)
			if err != nil {
				require.ErrorIs(t, err, zkutil.ErrNotAcquired)
				_, isAbove := zkutil.AsType[aboveLimitError](err)
				require.Equal(t, test.isAbove, isAbove, "%+v", test)
			}
			require.Equal(t, test.isAbove, status.Holder.Path == "", "no holder is in the way")
			require.Equal(t, want, status.Ahead, "the first look counts")
		}
	}
}

// The first permit is the holder, unless it is known already.
func TestHolderOfTheFirstPermit(t *testing.T) {
	p := &Pool{Taken: &queue.Queue{Dir: "/a/leases"}}
	status := &queue.WaitStatus{}
	taken := []queue.Contender{{Name: "lease-1"}, {Name: "lease-2"}}
	p.recordFirst(taken, status)
	require.Equal(t, queue.Participant{Path: "/a/leases/lease-1"}, status.Holder)
	status.Holder.Token = 7
	p.recordFirst(taken, status)
	require.EqualValues(t, 7, status.Holder.Token)
	p.recordFirst(taken[1:], status)
	require.Equal(t, queue.Participant{Path: "/a/leases/lease-2"}, status.Holder)
	p.recordFirst(nil, status)
	require.Zero(t, status.Holder)
}
