package testkit

import (
	"context"
	"testing"
	"time"
)

// Patience is how long tests wait for an event that has to happen. In a bubble of testing/synctest the wait costs nothing.
const Patience = time.Minute

// pause is the time between two checks of a condition.
const pause = 5 * time.Millisecond

// Shorter returns the size of a test, such as a number of rounds or clients, or a duration: full, or short with -short. A test
// of the short size still covers everything, but less often.
func Shorter[T any](full, short T) T {
	if testing.Short() {
		return short
	}
	return full
}

// Context returns a context that ends with the test or after [Patience], whichever is first.
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

// EventuallyIn is [Eventually] for a condition that has to hold within limit.
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
