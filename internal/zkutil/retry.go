package zkutil

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Retry bounds and paces the attempts at one step. MaxAttempts counts the first
// attempt too; zero MaxAttempts and MaxElapsed mean no bound but the context.
type Retry struct {
	InitialInterval, MaxInterval, MaxElapsed time.Duration
	MaxAttempts                              int
}

// WithDefaults replaces zero intervals by 50 ms and 2 s.
func (r Retry) WithDefaults() Retry {
	if r.InitialInterval == 0 {
		r.InitialInterval = 50 * time.Millisecond
	}
	if r.MaxInterval == 0 {
		r.MaxInterval = max(2*time.Second, r.InitialInterval)
	}
	return r
}

// retry calls step until it succeeds, fails with an error that again refuses, or
// ctx or the policy ends it. The waits grow exponentially, with jitter.
func retry[T any](ctx context.Context, policy Retry, again func(error) bool, step func() (T, error)) (T, error) {
	result, err := step()
	if err == nil || !again(err) {
		return result, err // nearly always, and then without the machinery
	}
	first, last := true, err
	pace := backoff.NewExponentialBackOff()
	pace.InitialInterval, pace.MaxInterval = policy.InitialInterval, policy.MaxInterval
	result, err = backoff.Retry(ctx, func() (T, error) {
		if first {
			first = false
			return result, last
		}
		result, err := step()
		if err != nil && !again(err) {
			return result, backoff.Permanent(err)
		}
		last = err
		return result, err
	},
		backoff.WithBackOff(pace),
		backoff.WithMaxTries(uint(max(policy.MaxAttempts, 0))),
		backoff.WithMaxElapsedTime(policy.MaxElapsed))
	if err != nil && ctx.Err() != nil && (isAny(err, ctx.Err(), context.Cause(ctx)) || again(err)) {
		err = interrupted(ctx, last)
	}
	return result, err
}

// patient is the policy of work that has to be done in the end: the same pace,
// without a bound.
func (r Retry) patient() Retry {
	r.MaxAttempts, r.MaxElapsed = 0, 0
	return r
}
