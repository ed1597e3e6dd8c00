package core

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The clock's readings are inexact. A difference below their error is no suspension.
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

// The thread may be interrupted between any two readings. The answer is as exact as the quickest attempt, and the first attempt without an
// interruption is the last one.
func TestLeadOfAClockDespiteInterruptions(t *testing.T) {
	const ahead, quick = time.Hour, 50 * time.Microsecond
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 0))
		least := 1 + random.IntN(2) // with 2 no attempt is quick
		var now, took time.Duration
		attempts, quickest := 0, time.Hour
		pass := func() {
			d := quick / 4 * time.Duration(least+random.IntN(4))
			now, took = now+d, took+d
		}
		base := func() time.Duration {
			if took > 0 {
				quickest = min(quickest, took)
			}
			return now
		}
		clock := func() time.Duration {
			require.GreaterOrEqual(t, quickest, quick, "an attempt after a quick one")
			attempts++
			took = 0
			pass()
			reading := now + ahead
			pass()
			return reading
		}
		lead := leadOf(clock, base)
		require.InDelta(t, ahead, lead, float64(quickest))
		if quickest >= quick {
			require.Equal(t, 20, attempts)
		}
	}
}

func TestSuspendedTimeOfThisMachine(t *testing.T) {
	a, b := suspendedTime(), suspendedTime()
	require.GreaterOrEqual(t, a, -suspendError)
	require.InDelta(t, a, b, float64(suspendError))
}

// A suspension shows at once, because the wall clock continues meanwhile, or else within exactFor. Until then, the
// system is not asked again without a sign of a suspension.
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
	wall -= time.Hour // the clock is set back
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

// The clock runs ahead of Go's by the time of all suspensions, and Local takes it back again.
func TestClockCountsSuspensions(t *testing.T) {
	var total time.Duration
	c := NewClock(func() time.Duration { return total })
	for range 3 {
		total += time.Hour
		before := time.Now()
		now := c.Now()
		require.WithinRange(t, now, before.Add(total), time.Now().Add(total))
		require.WithinRange(t, c.Local(now), before, time.Now())
	}
	require.WithinDuration(t, time.Now().Add(suspendedTime()), NewClock(nil).Now(), time.Second, "that of the system")
}
