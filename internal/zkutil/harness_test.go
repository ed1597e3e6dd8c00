package zkutil

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// connect opens a session and closes it at the end of the bubble.
func connect(t *testing.T, cfg Config) *Session {
	t.Helper()
	s, err := Connect(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	pass(10 * time.Millisecond) // whatever belongs to the connection is done
	return s
}

// shorter is how often something is tried: a tenth of n where tests have to be short.
func shorter(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// mutexOn is the queue of an InterProcessMutex.
func mutexOn(s *Session, dir string) *Queue {
	return &Queue{Session: s, Recipe: "mutex", Dir: dir, Prefix: "lock-", Markers: Markers, Data: []byte("me"), Rule: Exclusive}
}

func acquire(t *testing.T, q *Queue) *Entry {
	t.Helper()
	e, err := q.Acquire(t.Context())
	require.NoError(t, err)
	return e
}

// ended is when and why an entry's context ended; it waits for that.
func ended(t *testing.T, e *Entry) (time.Time, error) {
	t.Helper()
	select {
	case <-e.Context().Done():
		return time.Now(), context.Cause(e.Context())
	case <-time.After(time.Hour):
		require.FailNow(t, "the hold stands after an hour")
		return time.Time{}, nil
	}
}

// times are the moments of requests, counted from a start.
func times(requests []zktest.Request, start time.Time) []time.Duration {
	var at []time.Duration
	for _, r := range requests {
		if !r.Time.Before(start) {
			at = append(at, r.Time.Sub(start))
		}
	}
	return at
}

// sessionID is the id of the present session.
func sessionID(s *Session) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// eventually waits in virtual time until condition holds.
func eventually(t *testing.T, limit time.Duration, condition func() bool) {
	t.Helper()
	testkit.EventuallyIn(t, limit, func() bool {
		synctest.Wait()
		return condition()
	}, "the condition")
}

// pass lets virtual time go by.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // virtual time

var errBroken = errors.New("broken pipe")

// cut makes a fault of a condition.
func cut(when bool, lost zktest.Loss) zktest.Fault {
	if when {
		return zktest.Fault{Lost: lost}
	}
	return zktest.Fault{}
}
