package zkutil

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Retry bounds the repetition of a step, and sets the pauses. MaxAttempts includes the first attempt.
// MaxAttempts and MaxElapsed of zero are no bound.
type Retry struct {
	InitialInterval, MaxInterval, MaxElapsed time.Duration
	MaxAttempts                              int
}

// WithDefaults replaces zero intervals with 50 ms and 2 s.
func (r Retry) WithDefaults() Retry {
	if r.InitialInterval == 0 {
		r.InitialInterval = 50 * time.Millisecond
	}
	if r.MaxInterval == 0 {
		r.MaxInterval = max(2*time.Second, r.InitialInterval)
	}
	return r
}

// RepeatWhile calls step until it succeeds, mayRepeat refuses its error, or ctx or the policy ends. The pauses grow
// exponentially, with jitter. The series of pauses starts over after a step longer than the longest pause, because such
// a step made progress.
func RepeatWhile[T any](ctx context.Context, policy Retry, mayRepeat func(error) bool, step func() (T, error)) (T, error) {
	result, err := step()
	if err == nil {
		return result, nil // nearly always
	}
	return RepeatAfter(ctx, policy, mayRepeat, err, step)
}

// RepeatAfter is RepeatWhile after a failed first step.
func RepeatAfter[T any](ctx context.Context, policy Retry, mayRepeat func(error) bool, last error, step func() (T, error)) (T, error) {
	var none T
	if !mayRepeat(last) {
		return none, last
	}
	isFirst, isFinal := true, false
	pace := policy.exponential()
	result, err := backoff.Retry(ctx, func() (T, error) {
		if isFirst {
			isFirst = false
			return none, last
		}
		startedAt := time.Now()
		result, err := step()
		if err != nil && !mayRepeat(err) {
			isFinal = true
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
	if err != nil && ctx.Err() != nil && (!isFinal || matchesEndOf(ctx, err)) {
		err = Interrupted(ctx, last)
	}
	return result, err
}

// Pace returns the pauses in a series of failures, for callers that do more than repeat a step.
type Pace struct {
	policy Retry
	pauses cappedBackOff
	count  int
	began  time.Time // the first failure
}

// Pace returns a pace at the beginning of a series.
func (r Retry) Pace() *Pace {
	p := &Pace{policy: r, pauses: r.exponential()}
	p.Reset()
	return p
}

// Reset starts the series again.
func (p *Pace) Reset() {
	p.pauses.Reset()
	p.count = 0
}

// Next returns the pause after another failure. ok is false if the policy gives up.
func (p *Pace) Next() (pause time.Duration, ok bool) {
	if p.count == 0 {
		p.began = time.Now()
	}
	p.count++
	pause = p.pauses.NextBackOff()
	late := p.policy.MaxElapsed > 0 && time.Since(p.began)+pause > p.policy.MaxElapsed
	return pause, !late && p.count != p.policy.MaxAttempts
}

// AfterTerm returns the pause after a term of leadership of length led: after a failure, the next pause of the
// series; after a term shorter than the first pause, the first pause, because each term costs a sequence
// number, and terms that end at once would use the numbers up. No pause follows a term ended by the loss of the
// session, unless the term failed. ok is false if the policy gives up.
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
	if limit <= 0 {
		return IsClosed(done)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// cappedBackOff limits each pause to MaxInterval, which the jitter of ExponentialBackOff would exceed.
type cappedBackOff struct{ *backoff.ExponentialBackOff }

func (c cappedBackOff) NextBackOff() time.Duration {
	return min(c.ExponentialBackOff.NextBackOff(), c.MaxInterval)
}

// exponential returns the growing pauses of the policy.
func (r Retry) exponential() cappedBackOff {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = r.InitialInterval, r.MaxInterval
	return cappedBackOff{pauses}
}

// Patient returns the policy for work that has to succeed eventually. It has the same pace, and no bound.
func (r Retry) Patient() Retry {
	r.MaxAttempts, r.MaxElapsed = 0, 0
	return r
}

// maxRefusedPause is the longest pause after a refusal, unless the retry policy has a longer one. The pause is long
// because a refusal lasts until an operator changes a permission or a quota, and each attempt until then is a write
// that the quorum has to process.
const maxRefusedPause = 30 * time.Second

// AfterRefusals returns the policy with pauses that grow to 30 s.
func (r Retry) AfterRefusals() Retry {
	r.MaxInterval = max(r.MaxInterval, maxRefusedPause)
	return r
}
