package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Of several gaps, the gap with the earliest limit counts. A gap that ended 5T/18 before the write does not
// count.
func TestLimitAfterSeveralGaps(t *testing.T) {
	const timeout, horizon = 36 * time.Second, 24 * time.Second
	at := func(seconds int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(seconds) * time.Second) }
	gaps := Gaps{{StartAt: at(0), EndAt: at(6)}, {StartAt: at(12), EndAt: at(18)}}
	for _, test := range []struct{ sentAt, want int }{
		{7, 31}, // the first gap limits to 32, the second to 44, the horizon to 31
		{14, 32},
		{15, 32},
		{16, 40}, // the first gap ended 5T/18 before
		{27, 44},
		{28, 52},
	} {
		require.Equal(t, at(test.want), gaps.Limit(at(test.sentAt), horizon, timeout), "sent at %d s", test.sentAt)
	}
	early := Gaps{{StartAt: at(0), EndAt: at(15)}, {StartAt: at(15), EndAt: at(21)}}
	require.Equal(t, at(32), early.Limit(at(21), horizon, timeout), "not that of the latest, which would be 45")
}

// A gap that continues is one gap, with its first start. A gap of another kind, or with another start, is another one. Gaps
// that can limit no proof any more are forgotten.
func TestGapsAreJoinedAndForgotten(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(seconds) * time.Second) }
	var g Gaps
	add := func(start, end int, isLateWrite bool) {
		g.Add(Gap{StartAt: at(start), EndAt: at(end), IsLateWrite: isLateWrite}, 12*time.Second)
	}
	add(0, 2, false)
	add(0, 5, false)
	require.Equal(t, Gaps{{StartAt: at(0), EndAt: at(5)}}, g)
	add(0, 6, true)
	add(1, 7, true)
	require.Equal(t, Gaps{{StartAt: at(0), EndAt: at(5)}, {StartAt: at(0), EndAt: at(6), IsLateWrite: true}, {StartAt: at(1), EndAt: at(7), IsLateWrite: true}}, g)
	add(16, 17, false)
	require.Len(t, g, 4, "the first ended just 12 s before the latest")
	add(17, 18, false)
	require.Equal(t, Gaps{{StartAt: at(0), EndAt: at(6), IsLateWrite: true}, {StartAt: at(1), EndAt: at(7), IsLateWrite: true}, {StartAt: at(16), EndAt: at(17)}, {StartAt: at(17), EndAt: at(18)}}, g)

	require.True(t, g.HasStopSince(at(17)))
	require.False(t, g.HasStopSince(at(18)))
	g.DropLateWrites()
	require.Equal(t, Gaps{{StartAt: at(16), EndAt: at(17)}, {StartAt: at(17), EndAt: at(18)}}, g)
	g = Gaps{{StartAt: at(0), EndAt: at(6), IsLateWrite: true}}
	require.False(t, g.HasStopSince(at(0)), "a slow quorum looks the same")
}
