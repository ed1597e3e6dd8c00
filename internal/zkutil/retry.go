package zkutil

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Retry is how often and how long one step is repeated, and with which pauses. MaxAttempts includes
// the first attempt. MaxAttempts and MaxElapsed of zero are no bound.
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

// RepeatWhile calls step until it succeeds, mayRepeat refuses its error, or ctx or the policy ends. The
// pauses grow exponentially, with jitter. They start over after a step that took longer than the
// longest pause, because such a step has made progress.
func RepeatWhile[T any](ctx context.Context, policy Retry, mayRepeat func(error) bool, step func() (T, error)) (T, error) {
	result, err := step()
	if err == nil || !mayRepeat(err) {
		return result, err // nearly always
	}
	return repeatAfter(ctx, policy, mayRepeat, step, result, err)
}

// RepeatAfter is RepeatWhile after a first step that has failed.
func RepeatAfter[T any](ctx context.Context, policy Retry, mayRepeat func(error) bool, failure error, step func() (T, error)) (T, error) {
	var result T
	if !mayRepeat(failure) {
		return result, failure
	}
	return repeatAfter(ctx, policy, mayRepeat, step, result, failure)
}

// repeatAfter is RepeatWhile after a first failure. It is a function of its own, because callers that
// wait for hours in the first step then keep a small stack.
func repeatAfter[T any](ctx context.Context, policy Retry, mayRepeat func(error) bool, step func() (T, error), result T, last error) (T, error) {
	isFirst := true
	pace := policy.exponential()
	result, err := backoff.Retry(ctx, func() (T, error) {
		if isFirst {
			isFirst = false
			return result, last
		}
		startedAt := time.Now()
		result, err := step()
		if err != nil && !mayRepeat(err) {
			return result, backoff.Permanent(err)
		}
		if time.Since(startedAt) > pace.MaxInterval {
			pace.Reset()
		}
		last = err
		return result, err
	},
		backoff.WithBackOff(pace),
		backoff.WithMaxTries(uint(max(policy.MaxAttempts, 0))),
		backoff.WithMaxElapsedTime(policy.MaxElapsed))
	if err != nil && ctx.Err() != nil && (IsAny(err, ctx.Err(), context.Cause(ctx)) || mayRepeat(err)) {
		err = Interrupted(ctx, last)
	}
	return result, err
}

// Pace hands out the pauses in a row of failures, for those who do not just repeat a step.
type Pace struct {
	policy Retry
	pauses cappedBackOff
	count  int
	began  time.Time // the first failure
}

// Pace returns a pace at the beginning of a row.
func (r Retry) Pace() *Pace {
	p := &Pace{policy: r, pauses: r.exponential()}
	p.Reset()
	return p
}

// Reset begins a new row.
func (p *Pace) Reset() {
	p.pauses.Reset()
	p.count = 0
}

// Next returns the pause after another failure. Not ok: the policy gives up.
func (p *Pace) Next() (pause time.Duration, ok bool) {
	if p.count == 0 {
		p.began = time.Now()
	}
	p.count++
	pause = p.pauses.NextBackOff()
	late := p.policy.MaxElapsed > 0 && time.Since(p.began)+pause > p.policy.MaxElapsed
	return pause, !late && p.count != p.policy.MaxAttempts
}

// AfterTerm returns the pause after a term of leadership that took led: the next one of the row
// after a failure; and the first one after a term shorter than that, because each term costs a
// sequence number, and a term that ends at once would use them up. A term that the loss of its
// session has ended is followed by none, unless it failed. Not ok: the policy gives up.
func (p *Pace) AfterTerm(led time.Duration, failed bool, loss error) (pause time.Duration, ok bool) {
	if led > p.policy.MaxInterval {
		p.Reset()
	}
	if failed {
		return p.Next()
	}
	p.Reset()
	if led < p.policy.InitialInterval && !errors.Is(loss, ErrSessionLost) {
		pause, _ = p.Next()
		p.Reset()
	}
	return pause, true
}

// Pause waits for a pause, or until ctx ends.
func Pause(ctx context.Context, pause time.Duration) { Within(ctx.Done(), pause) }

// Within reports whether done is closed within limit.
func Within(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// cappedBackOff keeps MaxInterval the longest of its pauses: the jitter that
// ExponentialBackOff adds goes beyond.
type cappedBackOff struct{ *backoff.ExponentialBackOff }

func (c cappedBackOff) NextBackOff() time.Duration {
	return min(c.ExponentialBackOff.NextBackOff(), c.MaxInterval)
}

// exponential returns the pauses as the policy wants them to grow.
func (r Retry) exponential() cappedBackOff {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = r.InitialInterval, r.MaxInterval
	return cappedBackOff{pauses}
}

// Patient is the policy of work that has to be done in the end: the same pace,
// without a bound.
func (r Retry) Patient() Retry {
	r.MaxAttempts, r.MaxElapsed = 0, 0
	return r
}

// maxRefusedPause is the longest pause after a refusal, unless the retry policy has a longer one.
// It is long because a refusal lasts until somebody changes a permission or a quota, and each
// attempt until then is a write that the quorum agrees to refuse.
const maxRefusedPause = 30 * time.Second

// AfterRefusals is the policy with pauses that grow to 30 s.
func (r Retry) AfterRefusals() Retry {
	r.MaxInterval = max(r.MaxInterval, maxRefusedPause)
	return r
}
