package testkit

import (
	"context"
	"testing"
	"time"
)

// Patience is how long tests wait for something that has to happen. In a bubble of testing/synctest it costs nothing.
const Patience = time.Minute

// pause is the time between two looks at a condition.
const pause = 5 * time.Millisecond

// Shorter returns the size of a test: how many rounds, how large a crowd, how long a time. It is the full size, or the
// short one with -short. A test with the short size still drives everything, but fewer times.
func Shorter[T any](full, short T) T {
	if testing.Short() {
		return short
	}
	return full
}

// Context ends with the test or after [Patience], whichever is first.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	tb.Cleanup(cancel)
	return ctx
}

// Eventually waits until the condition holds, in real time or in virtual time. The condition runs in the test's goroutine, so
// that it may end the test itself. The test fails after [Patience].
func Eventually(tb testing.TB, condition func() bool, what string) {
	tb.Helper()
	EventuallyIn(tb, Patience, condition, what)
}

// EventuallyIn is [Eventually] for a condition that has to hold within a time.
func EventuallyIn(tb testing.TB, limit time.Duration, condition func() bool, what string) {
	tb.Helper()
	late := time.NewTimer(limit)
	defer late.Stop()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-late.C:
			if !condition() {
				tb.Fatalf("not within %v: %s", limit, what)
			}
			return
		}
	}
}

// Receive waits for a value on a channel, or for its close. The test fails after [Patience].
func Receive[T any](tb testing.TB, from <-chan T, what string) T {
	tb.Helper()
	late := time.NewTimer(Patience)
	defer late.Stop()
	select {
	case value := <-from:
		return value
	case <-late.C:
		tb.Fatalf("not within %v: %s", Patience, what)
		panic("unreachable")
	}
}
