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
