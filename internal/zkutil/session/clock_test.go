package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The clock's readings are not exact: what is below their error is no suspension.
func TestClockIgnoresJitter(t *testing.T) {
	total := time.Minute
	c := &clock{suspended: func() time.Duration { return total }}
	require.Equal(t, time.Minute, c.offset())
	for _, d := range []time.Duration{suspendError, -time.Second, 0} {
		total = time.Minute + d
		require.Equal(t, time.Minute, c.offset(), "%v", d)
	}
	total = time.Minute + 2*suspendError
	require.Equal(t, total, c.offset())
	require.True(t, c.local(time.Time{}).IsZero())
}

func TestSuspendedTimeOfThisMachine(t *testing.T) {
	a, b := suspendedTime(), suspendedTime()
	require.GreaterOrEqual(t, a, -suspendError)
	require.InDelta(t, a, b, float64(suspendError))
}
