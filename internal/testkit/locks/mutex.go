package locks

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// ErrWork is the error of a test's work.
var ErrWork = errors.New("no database")

// Attempt is Acquire or TryAcquire.
type Attempt func(context.Context) (*recipes.Lease, error)

// Nothing is a function for Do that does nothing.
func Nothing(context.Context, *recipes.Lease) error { return nil }

// MutexOn returns a mutex on any path.
func MutexOn(tb testing.TB, client *recipes.Client, path string, opts ...mutex.Option) *mutex.InterProcessMutex {
	tb.Helper()
	m, err := mutex.New(client, path, opts...)
	require.NoError(tb, err)
	return m
}

// EndOf returns a channel that gets the time at which a lease's context ends.
func EndOf(lease *recipes.Lease) <-chan time.Time {
	end := make(chan time.Time, 1)
	context.AfterFunc(lease.Context(), func() { end <- time.Now() })
	return end
}

// Revocations returns a revocation listener, and a channel that gets the leases of its calls.
func Revocations() (mutex.Option, <-chan *recipes.Lease) {
	calls := make(chan *recipes.Lease, 16)
	return mutex.WithRevocationListener(func(lease *recipes.Lease) { calls <- lease }), calls
}

// IsRevoked reports whether a lease's revocation is known by now.
func IsRevoked(lease *recipes.Lease) bool {
	synctest.Wait()
	return bubble.IsClosed(lease.Revoked())
}

// TakeLog returns the new lines of a log as soon as nothing happens any more.
func TakeLog(log *testkit.Log) []string {
	bubble.Pass(bubble.Moment)
	return log.Take()
}

// Stamp formats a time as the log does.
func Stamp(t time.Time) string { return t.Format("2006-01-02T15:04:05.000Z07:00") }
