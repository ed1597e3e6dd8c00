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

// config has the values set by the options of a selector.
type config struct {
	id           []byte // nil for the client's
	name         string
	priority     *int          // nil if the candidate is not steered
	maxHold      time.Duration // 0: none
	isAuto       bool          // automatic requeue
	backoff      zkutil.Retry
	grace        time.Duration
	errorHandler func(error) // nil: errors are logged
}

// configure returns the defaults as changed by the options.
func configure(opts []Option) (config, error) {
	cfg := config{grace: defaultGrace}
	err := option.Apply(&cfg, append([]Option{WithRequeueBackoff(recipes.RetryPolicy{})}, opts...))
	return cfg, err
}

const defaultGrace = 30 * time.Second

// WithID sets the ID by which others see this participant; the default is the id of the client (see recipes.WithID). At
// most 64 KiB.
func WithID(id string) Option {
	return func(cfg *config) error { return option.SetID(&cfg.id, id) }
}

// WithName sets a name for the election, of at most 128 bytes, which is the same in all processes. The hooks of
// [recipes.Trace] get the name as Name, for metrics, which must not have a label for each path.
func WithName(name string) Option {
	return func(cfg *config) error { return option.SetName(&cfg.name, name) }
}

// WithMaxHold ends each term with ErrMaxHold after d. Use it to bound leaders that hang, or to rotate the leadership. The
// step-down is the usual one. The context ends, the function returns, the znode is deleted, and the selector continues as after
// any other term; without another term, Run returns ErrMaxHold. So code that ignores its context keeps others from leading,
// which is reported as ErrWorkGoesOn; see [WithErrorHandler].
func WithMaxHold(d time.Duration) Option {
	return func(cfg *config) error { return option.SetMaxHold(&cfg.maxHold, d) }
}

// WithPriority sets the priority of the candidate, from -1,000,000 to 1,000,000. The selector of the highest priority leads, by
// orderly step-down of the others. See the package comment. The priority is part of the name of the candidate's znode. To
// change it, close the selector and make another. Candidates without the option never step down for others. WithPriority(0)
// makes a candidate that can be asked to yield, also by TransferTo.
func WithPriority(n int) Option {
	return func(cfg *config) error { return option.SetPriority(&cfg.priority, n) }
}

// WithAutoRequeue makes the selector join again after each term (see [LeaderSelector.AutoRequeue]).
func WithAutoRequeue() Option {
	return func(cfg *config) error {
		cfg.isAuto = true
		return nil
	}
}

// WithRequeueBackoff sets the pauses between terms. After a failure of the function the automatic requeue
// waits: for InitialInterval (default 1 s) at first, then longer each time, with jitter, for at most
// MaxInterval (30 s). After MaxAttempts failures in a row, or MaxElapsed after the first failure, the selector
// gives up with the last error. By default the selector never gives up. A success starts the series again, and
// so does a failure after a term longer than MaxInterval.
//
// A term shorter than InitialInterval is followed by a wait of InitialInterval, plus or minus a half, also
// after a success and before Requeue takes effect, because a function that returns at once would otherwise use
// up the path's sequence numbers within days. No wait follows a longer success or the loss of the session.
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

// WithErrorHandler sets a function that gets the errors and panics of the leader's function, the refusals of the
// server, and ErrSequenceExhausted, each as a *recipes.OpError. A panic is a *recipes.PanicError, which has the
// stack. Calls run one at a time, in order, under no lock. Run decides after the handler returns, so the handler may
// call Requeue. Without a handler the errors are logged at Error, to the client's logger, except the error returned
// by Run. While a call does not return, up to 1,024 errors wait. Any beyond are logged.
//
// A function that still runs after its term is reported as ErrWorkGoesOn, after a second and then once a
// minute, also to the log at Warn.
//
// After a refusal, such as zk.ErrNoAuth, an exceeded quota or ErrSessionFull, the selector tries again, with
// pauses that grow to 30 s, and leads once the server permits. The handler gets the refusal once, until the
// refusal changes or is over. Meanwhile the selector has no znode, so that others can lead. A non-ephemeral
// znode ahead is reported in the same way, as ErrNotEphemeral, while the selector waits for the deletion of the
// znode.
func WithErrorHandler(handle func(error)) Option {
	return func(cfg *config) error {
		if handle == nil {
			return errors.New("error handler: nil")
		}
		cfg.errorHandler = handle
		return nil
	}
}
