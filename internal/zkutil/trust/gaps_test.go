package trust

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Of several gaps, the gap with the earliest limit counts. A gap that ended T/4 before the write does not
// count.
func TestLimitAfterSeveralGaps(t *testing.T) {
	const timeout, horizon = 12 * time.Second, 8 * time.Second
	at := func(seconds int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(seconds) * time.Second) }
	gaps := Gaps{{StartAt: at(0), EndAt: at(2)}, {StartAt: at(4), EndAt: at(6)}}
	for _, test := range []struct{ sentAt, want int }{
		{3, 11}, // limits: the first gap 11, the second 15, the horizon 11
		{4, 11},
		{5, 13}, // the first gap ended T/4 before
		{8, 15},
		{9, 17},
	} {
		require.Equal(t, at(test.want), gaps.Limit(at(test.sentAt), horizon, timeout), "sent at %d s", test.sentAt)
	}
	early := Gaps{{StartAt: at(0), EndAt: at(5)}, {StartAt: at(5), EndAt: at(7)}}
	require.Equal(t, at(11), early.Limit(at(7), horizon, timeout), "not that of the latest, which would be 15")
}
