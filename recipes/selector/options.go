package selector

import (
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Option configures a [LeaderSelector].
type Option func(*LeaderSelector) error

const (
	defaultGrace = 30 * time.Second
	// maxID bounds what a participant may write about itself into its znode.
	maxID = 64 << 10
)

// WithID sets what others see of this participant; the default is the host's address.
// At most 64 KiB.
func WithID(id string) Option {
	return func(s *LeaderSelector) error {
		if len(id) > maxID {
			return fmt.Errorf("id of %d bytes: more than %d", len(id), maxID)
		}
		s.queue.Data = []byte(id)
		return nil
	}
}

// WithAutoRequeue makes the selector stand again after each term: see
// [LeaderSelector.AutoRequeue].
func WithAutoRequeue() Option {
	return func(s *LeaderSelector) error {
		s.auto = true
		return nil
	}
}

// WithRequeueBackoff paces the automatic requeue after the function has failed: the
// waits grow, with jitter, from InitialInterval (default 1 s) to MaxInterval (30 s).
// After MaxAttempts failures in a row, or MaxElapsed after the first of them, the selector
// gives up with the last error; by default it never does. A success begins a new row, and
// so does a failure after a time as leader that was longer than the longest wait. After a
// success there is no wait.
func WithRequeueBackoff(policy recipes.RetryPolicy) Option {
	return func(s *LeaderSelector) error {
		if min(policy.InitialInterval, policy.MaxInterval, policy.MaxElapsed) < 0 || policy.MaxAttempts < 0 {
			return errors.New("requeue backoff: negative field")
		}
		if policy.InitialInterval == 0 {
			policy.InitialInterval = time.Second
		}
		if policy.MaxInterval == 0 {
			policy.MaxInterval = max(30*time.Second, policy.InitialInterval)
		}
		s.backoff = zkutil.Retry(policy)
		return nil
	}
}

// WithStepDownGrace sets how long Close waits for the function to return; the default
// is 30 s.
func WithStepDownGrace(grace time.Duration) Option {
	return func(s *LeaderSelector) error {
		if grace <= 0 {
			return errors.New("step-down grace: not positive")
		}
		s.grace = grace
		return nil
	}
}

// WithErrorHandler sets who gets the errors and panics of the function, and the
// refusal of the server that ends a campaign, each as a *recipes.OpError. Calls come
// one at a time, in order, under no lock; Requeue inside one is heeded. Without a handler
// they are logged.
func WithErrorHandler(handle func(error)) Option {
	return func(s *LeaderSelector) error {
		if handle == nil {
			return errors.New("error handler: nil")
		}
		s.handle = handle
		return nil
	}
}
