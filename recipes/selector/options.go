package selector

import (
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
)

// Option configures a [LeaderSelector], in New alone.
type Option func(*config) error

// config is what the options of a selector set.
type config struct {
	id           []byte // nil: the client's
	name         string
	isAuto       bool // automatic requeue
	backoff      zkutil.Retry
	grace        time.Duration
	errorHandler func(error) // nil: errors are logged
}

// configure returns the defaults as the options change them.
func configure(opts []Option) (config, error) {
	cfg := config{grace: defaultGrace}
	err := option.Apply(&cfg, append([]Option{WithRequeueBackoff(recipes.RetryPolicy{})}, opts...))
	return cfg, err
}

const defaultGrace = 30 * time.Second

// WithID sets what others see of this participant; the default is that of recipes.WithID. At most 64 KiB.
func WithID(id string) Option {
	return func(cfg *config) error { return option.SetID(&cfg.id, id) }
}

// WithName sets a name for the election, of at most 128 bytes, which is the same in all processes. It is the
// Name in the hooks of [recipes.Trace], for metrics, which must not have a label for each path.
func WithName(name string) Option {
	return func(cfg *config) error { return option.SetName(&cfg.name, name) }
}

// WithAutoRequeue makes the selector join again after each term: see
// [LeaderSelector.AutoRequeue].
func WithAutoRequeue() Option {
	return func(cfg *config) error {
		cfg.isAuto = true
		return nil
	}
}

// WithRequeueBackoff sets the pauses between terms. After a failure of the function the automatic
// requeue waits: for InitialInterval (default 1 s) at first, then longer each time, with jitter, for at
// most MaxInterval (30 s). After MaxAttempts failures in a row, or MaxElapsed after the first of them,
// the selector gives up with the last error. By default it never does. A success starts the series
// again, and so does a failure after a term longer than MaxInterval.
//
// A term shorter than InitialInterval is followed by a wait of that length, plus or minus a half. This
// also holds for a success and for Requeue, because a function that returns at once would otherwise
// use up the path's sequence numbers within days. There is no wait after a longer success or after
// the loss of the session.
func WithRequeueBackoff(policy recipes.RetryPolicy) Option {
	return func(cfg *config) error {
		if err := option.CheckRetry("requeue backoff", zkutil.Retry(policy)); err != nil {
			return err
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
		cfg.grace = grace
		return option.CheckPositive("step-down grace", grace)
	}
}

// WithErrorHandler sets a function that gets the errors and panics of the leader's function, the
// refusals of the server, and ErrSequenceExhausted, each as a *recipes.OpError. A panic comes as a
// *recipes.PanicError, which has the stack. Calls come one at a time, in order, under no lock. Run
// decides after the handler has returned, so the handler may call Requeue. Without a handler the
// errors are logged at Error, to the client's logger, except the error that Run returns.
//
// After a refusal, such as zk.ErrNoAuth, an exceeded quota or ErrSessionFull, the selector tries again, with pauses
// that grow to 30 s, and leads once it may. The handler gets the refusal once, until it changes or is
// over. Meanwhile the selector has no znode, so that the others can lead.
func WithErrorHandler(handle func(error)) Option {
	return func(cfg *config) error {
		if handle == nil {
			return errors.New("error handler: nil")
		}
		cfg.errorHandler = handle
		return nil
	}
}
