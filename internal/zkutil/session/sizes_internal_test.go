package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// Each constant that bounds something is met, and passed by one: nothing hangs, nothing is forgotten, and the bound holds.

// Warnings about one directory more than are remembered come as well, and once in a while each.
func TestWarningsBeyondThoseRemembered(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := &Session{}
		for i := range 2*maxWarned + 1 {
			dir := fmt.Sprint("/locks/", i)
			require.True(t, s.MayWarnOf(dir), dir)
			require.False(t, s.MayWarnOf(dir), "twice within a minute")
			require.LessOrEqual(t, len(s.report.warnedAt), maxWarned)
		}
		time.Sleep(warnPause) //nolint:forbidigo // virtual time
		require.True(t, s.MayWarnOf(fmt.Sprint("/locks/", 2*maxWarned)))
	})
}

// A channel takes as many states as it has room for, the latest. Nothing blocks.
func TestStatesBeyondTheRoomOfTheChannel(t *testing.T) {
	for _, n := range []int{maxUnread - 1, maxUnread, maxUnread + 1, 2*maxUnread + 1} {
		for waiting := range maxUnread + 1 {
			testkit.Bubble(t, func(t *testing.T) { // which fails if anything blocks
				all := make([]State, 0, n)
				for i := range n {
					all = append(all, []State{Lost, Suspended, Reconnected, Lost}[i%4])
				}
				all = append(all, Closed)
				out := make(chan State, maxUnread)
				first := min(waiting, n)
				for _, state := range all[:first] {
					out <- state
				}
				leaveUnread(out, slices.Clone(all[first:]))
				close(out)
				var got []State
				for state := range out {
					got = append(got, state)
				}
				want := dropPairs(slices.Clone(all), maxUnread)
				require.Equal(t, want[max(0, len(want)-maxUnread):], got)
			})
		}
	}
}

// An audit checks as many watches as it may, and no more bytes than it may, but one at least.
func TestWatchesBeyondOneAudit(t *testing.T) {
	watches := func(n, length int) []*Watch {
		all := make([]*Watch, n)
		for i := range all {
			all[i] = &Watch{path: "/" + strings.Repeat("a", length-1)}
		}
		return all
	}
	const header = 17
	for _, test := range []struct{ n, length, want int }{
		{0, 1, 0},
		{maxAudited, 1, maxAudited},
		{maxAudited + 1, 1, maxAudited},
		{2*maxAudited + 1, 1, maxAudited},
		{8, maxAuditedBytes/8 - header, 8},
		{9, maxAuditedBytes/8 - header, 8},
		{8, maxAuditedBytes/8 - header + 1, 7},
		{2, maxAuditedBytes + 1, 1},
	} {
		require.Equal(t, test.want, countAuditable(watches(test.n, test.length)), "%+v", test)
	}
}
