package zkutil

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

func TestRetryDefaults(t *testing.T) {
	require.Equal(t, Retry{InitialInterval: 50 * time.Millisecond, MaxInterval: 2 * time.Second}, Retry{}.WithDefaults())
	require.Equal(t, Retry{InitialInterval: 3 * time.Second, MaxInterval: 3 * time.Second, MaxAttempts: 2, MaxElapsed: 1},
		Retry{InitialInterval: 3 * time.Second, MaxAttempts: 2, MaxElapsed: 1}.WithDefaults())
	require.Equal(t, Retry{InitialInterval: 1, MaxInterval: 2}, Retry{1, 2, 3, 4}.Patient(), "the pace without the bounds")
}

// failing fails n times with err, for ever if n is negative. It counts its calls.
func failing(n int, err error, calls *int) func() (string, error) {
	return func() (string, error) {
		*calls++
		if n < 0 || *calls <= n {
			return "", err
		}
		return "done", nil
	}
}

func TestRetry(t *testing.T) {
	for name, test := range map[string]struct {
		policy   Retry
		failures int
		err      error
		calls    int // at most, when negative
		want     error
	}{
		"at once":         {Retry{}, 0, nil, 1, nil},
		"later":           {Retry{}, 5, zk.ErrConnectionClosed, 6, nil},
		"refused":         {Retry{}, -1, zk.ErrNoAuth, 1, zk.ErrNoAuth},
		"attempts":        {Retry{MaxAttempts: 3}, -1, zk.ErrNoServer, 3, zk.ErrNoServer},
		"one attempt":     {Retry{MaxAttempts: 1}, -1, zk.ErrNoServer, 1, zk.ErrNoServer},
		"elapsed":         {Retry{MaxElapsed: 10 * time.Second}, -1, zk.ErrNoServer, -20, zk.ErrNoServer},
		"long but no end": {Retry{}, 500, zk.ErrNoServer, 501, nil},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				calls := 0
				start := time.Now()
				result, err := RepeatWhile(t.Context(), test.policy.WithDefaults(), IsTransient, failing(test.failures, test.err, &calls))
				require.ErrorIs(t, err, test.want)
				if test.want == nil {
					require.Equal(t, "done", result)
				}
				if test.calls < 0 {
					require.LessOrEqual(t, calls, -test.calls)
					require.Greater(t, calls, 2)
					require.LessOrEqual(t, time.Since(start), test.policy.MaxElapsed)
				} else {
					require.Equal(t, test.calls, calls)
				}
				require.LessOrEqual(t, time.Since(start), time.Duration(calls)*2*time.Second, "no wait is longer than MaxInterval")
			})
		})
	}
}

// The context ends the retries, and the error includes the last failure.
func TestRetryIsBoundedByTheContext(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 7*time.Second, errPipe)
		defer cancel()
		calls := 0
		start := time.Now()
		_, err := RepeatWhile(ctx, Retry{}.WithDefaults(), IsTransient, failing(-1, zk.ErrNoServer, &calls))
		require.LessOrEqual(t, time.Since(start), 7*time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errPipe)
		require.ErrorIs(t, err, zk.ErrNoServer)
	})
}

// A refusal that coincides with the end of the context stays a refusal.
func TestRetryReportsARefusalBesideAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := RepeatWhile(ctx, Retry{}.WithDefaults(), IsTransient, func() (int, error) {
		cancel()
		return 0, zk.ErrNoAuth
	})
	require.ErrorIs(t, err, zk.ErrNoAuth)
}

// MaxInterval is the longest wait: jitter adds nothing to it.
func TestNoWaitIsLongerThanMaxInterval(t *testing.T) {
	for name, policy := range map[string]Retry{
		"default":            Retry{}.WithDefaults(),
		"of a selector":      {InitialInterval: time.Second, MaxInterval: 30 * time.Second},
		"one interval alone": {InitialInterval: time.Second, MaxInterval: time.Second},
		"the wrong way":      {InitialInterval: 3 * time.Second / 2, MaxInterval: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var longest time.Duration
			waits := map[time.Duration]bool{}
			for range 20 {
				pace := policy.Pace()
				for range 50 {
					wait, ok := pace.Next()
					require.True(t, ok)
					require.LessOrEqual(t, wait, policy.MaxInterval)
					longest = max(longest, wait)
					waits[wait] = true
				}
			}
			require.Greater(t, longest, policy.MaxInterval*9/10, "and waits come near it")
			require.Greater(t, len(waits), 20, "with jitter")
		})
	}
}

// A step that takes longer than the longest pause made progress, so the pauses behind it are as short as at first.
func TestPausesStartOverAfterALongStep(t *testing.T) {
	for _, test := range []struct {
		step    time.Duration
		isReset bool
	}{{time.Minute, false}, {time.Minute + 1, true}} {
		testkit.Bubble(t, func(t *testing.T) {
			calls, endedAt := 0, time.Time{}
			var pauses []time.Duration
			_, err := RepeatWhile(t.Context(), Retry{InitialInterval: time.Second, MaxInterval: time.Minute, MaxAttempts: 13}, IsTransient, func() (int, error) {
				if !endedAt.IsZero() {
					pauses = append(pauses, time.Since(endedAt))
				}
				if calls++; calls == 12 {
					time.Sleep(test.step) //nolint:forbidigo // virtual time
				}
				endedAt = time.Now()
				return 0, zk.ErrNoServer
			})
			require.ErrorIs(t, err, zk.ErrNoServer)
			require.Len(t, pauses, 12)
			require.Greater(t, pauses[10], 15*time.Second)
			require.Equal(t, test.isReset, pauses[11] < 2*time.Second, "%v", pauses)
		})
	}
}

// A failed term is followed by the next pause of the series, a short one by the first pause, unless the session was lost, and a long one ends the
// series.
func TestPauseAfterATerm(t *testing.T) {
	policy := Retry{InitialInterval: time.Second, MaxInterval: time.Minute, MaxAttempts: 3}
	isFirst := func(pause time.Duration) bool { return pause >= time.Second/2 && pause <= 3*time.Second/2 }
	for name, test := range map[string]struct {
		led      time.Duration
		isFailed bool
		loss     error
		isPause  bool
	}{
		"short":               {time.Second - 1, false, nil, true},
		"as long as a pause":  {time.Second, false, nil, false},
		"short, lost":         {0, false, ErrSessionLost, false},
		"short, deleted":      {0, false, ErrNodeDeleted, true},
		"failed and lost":     {time.Second, true, ErrSessionLost, true},
		"failed":              {time.Second, true, nil, true},
		"failed after a year": {365 * 24 * time.Hour, true, nil, true},
	} {
		pause, ok := policy.Pace().AfterTerm(test.led, test.isFailed, test.loss)
		require.True(t, ok, name)
		require.Equal(t, test.isPause, pause > 0, name)
		require.Equal(t, test.isPause, isFirst(pause), name)
	}
	for name, test := range map[string]struct {
		between func(p *Pace)
		isOver  bool // the third failure ends the series
	}{
		"failures alone":          {func(*Pace) {}, true},
		"a success":               {func(p *Pace) { p.AfterTerm(time.Second, false, nil) }, false},
		"a short success":         {func(p *Pace) { p.AfterTerm(0, false, nil) }, false},
		"a long term that failed": {func(p *Pace) { p.AfterTerm(time.Minute+1, true, nil) }, false},
		"another that failed":     {func(p *Pace) { p.AfterTerm(time.Minute, true, nil) }, true},
	} {
		pace := policy.Pace()
		pace.AfterTerm(0, true, nil)
		if name == "failures alone" {
			pace.AfterTerm(0, true, nil)
		}
		test.between(pace)
		_, ok := pace.AfterTerm(0, true, nil)
		require.Equal(t, !test.isOver, ok, name)
	}
}

// A series is as long as the policy allows, pauses included, from the first failure.
func TestPaceIsBoundedInTime(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		pace := Retry{InitialInterval: time.Nanosecond, MaxInterval: time.Nanosecond, MaxElapsed: time.Minute}.Pace()
		for range 2 {
			time.Sleep(time.Hour) //nolint:forbidigo // virtual time
			for _, wait := range []time.Duration{0, time.Minute - 1, 2} {
				time.Sleep(wait) //nolint:forbidigo // virtual time
				pause, ok := pace.Next()
				require.LessOrEqual(t, pause, time.Nanosecond)
				require.Equal(t, wait != 2, ok)
			}
			pace.Reset()
		}
	})
}

// Within waits for the limit at most, and for nothing if no time is left.
func TestWithin(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		open, closed := make(chan struct{}), make(chan struct{})
		close(closed)
		start := time.Now()
		for _, limit := range []time.Duration{-time.Second, 0, time.Hour} {
			require.True(t, Within(closed, limit))
		}
		require.False(t, Within(open, 0))
		require.False(t, Within(open, -time.Hour))
		require.Equal(t, start, time.Now())
		require.False(t, Within(open, time.Hour))
		require.Equal(t, time.Hour, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		Pause(ctx, time.Hour)
		require.Equal(t, time.Hour+time.Minute, time.Since(start))
	})
}
