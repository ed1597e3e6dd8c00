package trust

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The clock's readings are not exact: a difference below their error is not a suspension.
func TestClockIgnoresJitter(t *testing.T) {
	total := time.Minute
	c := &Clock{suspended: func() time.Duration { return total }}
	require.Equal(t, time.Minute, c.offset())
	for _, d := range []time.Duration{suspendError, -time.Second, 0} {
		total = time.Minute + d
		require.Equal(t, time.Minute, c.offset(), "%v", d)
	}
	total = time.Minute + 2*suspendError
	require.Equal(t, total, c.offset())
	require.True(t, c.Local(time.Time{}).IsZero())
}

func TestSuspendedTimeOfThisMachine(t *testing.T) {
	a, b := suspendedTime(), suspendedTime()
	require.GreaterOrEqual(t, a, -suspendError)
	require.InDelta(t, a, b, float64(suspendError))
}

// A suspension shows at once, because the wall clock goes on meanwhile, or else within exactFor. Until exactFor
// has passed, the system is not asked again without a sign of a suspension.
func TestSuspensionIsNoticed(t *testing.T) {
	wall, monotonic, asked := time.Hour, time.Minute, 0
	total := time.Second
	s := &suspension{
		exact:  func() time.Duration { asked++; return total },
		clocks: func() (time.Duration, time.Duration) { return wall, monotonic },
	}
	pass := func(d time.Duration) { wall, monotonic = wall+d, monotonic+d }
	suspend := func(d time.Duration) { wall, total = wall+d, total+d }
	requireAsked := func(times int) {
		t.Helper()
		asked = 0
		require.Equal(t, total, s.length())
		require.Equal(t, times, asked)
	}
	requireAsked(1)
	requireAsked(0)
	pass(exactFor - 1)
	requireAsked(0)
	pass(1)
	requireAsked(1)
	suspend(suspendError)
	requireAsked(1)
	requireAsked(0)
	suspend(time.Hour)
	requireAsked(1)
	suspend(time.Hour)
	wall -= time.Hour // somebody sets the clock back
	require.Equal(t, total-time.Hour, s.length())
	pass(exactFor)
	requireAsked(1)
	wall -= time.Hour // without a suspension
	requireAsked(1)
	requireAsked(0)
}

func TestSuspensionOfThisMachine(t *testing.T) {
	s := newSuspension()
	require.InDelta(t, suspendedTime(), s.length(), float64(suspendError))
}

func BenchmarkClock(b *testing.B) {
	c := &Clock{suspended: newSuspension().length}
	for b.Loop() {
		_ = c.Now()
	}
}
