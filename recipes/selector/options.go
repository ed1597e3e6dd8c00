package selector

import (
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Option configures a [LeaderSelector], in New alone.
type Option func(*config) error

// config is what the options of a selector set.
type config struct {
	id      []byte // nil: the host's address
	auto    bool
	backoff zkutil.Retry
	grace   time.Duration
	handle  func(error) // errors; nil: they are logged
}

// configure returns the defaults as the options change them.
func configure(opts []Option) (config, error) {
	cfg := config{grace: defaultGrace}
	for _, opt := range append([]Option{WithRequeueBackoff(recipes.RetryPolicy{})}, opts...) {
		if opt == nil {
			return cfg, errors.New("nil option")
		}
		if err := opt(&cfg); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
}

const (
	defaultGrace = 30 * time.Second
	// maxID bounds what a participant may write about itself into its znode.
	maxID = 64 << 10
)

// WithID sets what others see of this participant; the default is the host's address.
// At most 64 KiB.
func WithID(id string) Option {
	return func(cfg *config) error {
		if len(id) > maxID {
			return fmt.Errorf("id of %d bytes: more than %d", len(id), maxID)
		}
		cfg.id = []byte(id)
		return nil
	}
}

// WithAutoRequeue makes the selector stand again after each term: see
// [LeaderSelector.AutoRequeue].
func WithAutoRequeue() Option {
	return func(cfg *config) error {
		cfg.auto = true
		return nil
	}
}

// WithRequeueBackoff paces the terms. After a failure of the function the automatic requeue
// waits: from InitialInterval (default 1 s) on, longer each time, with jitter, for at most
// MaxInterval (30 s). After MaxAttempts failures in a row, or MaxElapsed after the first of
// them, the selector gives up with the last error; by default it never does. A success starts
// the series again, and so does a failure after a term longer than MaxInterval.
//
// A term shorter than InitialInterval is followed by a wait of that length, give or take
// a half, even if it was a success or the requeue is by hand: a function that returns at once
// would otherwise use up the path's sequence numbers within days. After a longer success there
// is no wait, and none after the loss of the session.
func WithRequeueBackoff(policy recipes.RetryPolicy) Option {
	return func(cfg *config) error {
		if min(policy.InitialInterval, policy.MaxInterval, policy.MaxElapsed) < 0 || policy.MaxAttempts < 0 {
			return errors.New("requeue backoff: negative field")
		}
		if policy.InitialInterval == 0 {
			policy.InitialInterval = time.Second
		}
		if policy.MaxInterval == 0 {
			policy.MaxInterval = max(30*time.Second, policy.InitialInterval)
		}
		cfg.backoff = zkutil.Retry(policy)
		return nil
	}
}

// WithStepDownGrace sets how long Close waits for the function to return; the default
// is 30 s.
func WithStepDownGrace(grace time.Duration) Option {
	return func(cfg *config) error {
		if grace <= 0 {
			return errors.New("step-down grace: not positive")
		}
		cfg.grace = grace
		return nil
	}
}

// WithErrorHandler sets who gets the errors and panics of the function, the refusals of the
// server, and ErrSequenceExhausted, each as a *recipes.OpError. Calls come one at a time, in
// order, under no lock. Requeue inside one is heeded: Run decides after the handler has
// returned. A panic comes as a *recipes.PanicError, which has the stack. Without a handler
// they are logged at Error, to the client's logger, but for the error that Run returns.
//
// A refusal, such as zk.ErrNoAuth or an exceeded quota, does not end the campaign: the selector
// tries again, with pauses that grow to 30 s, and leads once it may. It is told once until it
// changes or is over. Meanwhile the selector has no znode, and is in nobody's way.
func WithErrorHandler(handle func(error)) Option {
	return func(cfg *config) error {
		if handle == nil {
			return errors.New("error handler: nil")
		}
		cfg.handle = handle
		return nil
	}
}
