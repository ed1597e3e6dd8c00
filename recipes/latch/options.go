package latch

import (
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
)

// Option configures a [LeaderLatch].
type Option func(*config) error

// config has the values set by the options of a latch.
type config struct {
	id           []byte // nil for the client's
	name         string
	priority     *int          // nil if the candidate is not steered
	maxHold      time.Duration // 0: none
	mode         CloseMode
	grace        time.Duration
	listeners    []Listener
	errorHandler func(error) // nil: errors are only logged
}

func configure(opts []Option) (config, error) {
	cfg := config{grace: defaultGrace}
	if err := option.Apply(&cfg, opts); err != nil {
		return config{}, err
	}
	return cfg, nil
}

// CloseMode decides whether NotLeader of the listeners is called when their latch is closed.
type CloseMode int

const (
	// Silent calls no listener. Silent is the default, as in Curator.
	Silent CloseMode = iota
	// NotifyLeader calls NotLeader, if the latch leads, before the znode is deleted.
	NotifyLeader
)

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
// step-down is the usual one. The context ends, the listeners return, the znode is deleted, and the latch joins again at the
// tail. So code that ignores its context keeps others from leading, which is reported as ErrWorkGoesOn; see [WithErrorHandler].
func WithMaxHold(d time.Duration) Option {
	return func(cfg *config) error { return option.SetMaxHold(&cfg.maxHold, d) }
}

// WithPriority sets the priority of the candidate, from -1,000,000 to 1,000,000. The latch of the highest priority leads, by
// orderly step-down of the others. See the package comment. The priority is part of the name of the candidate's znode. To
// change it, close the latch and make another. Candidates without the option never step down for others. WithPriority(0) makes
// a candidate that can be asked to yield, also by TransferTo.
func WithPriority(n int) Option {
	return func(cfg *config) error { return option.SetPriority(&cfg.priority, n) }
}

func (m CloseMode) check() error {
	if m != Silent && m != NotifyLeader {
		return fmt.Errorf("unknown close mode %d", int(m))
	}
	return nil
}

// WithCloseMode sets the mode of Close; the default is Silent.
func WithCloseMode(mode CloseMode) Option {
	return func(cfg *config) error {
		cfg.mode = mode
		return mode.check()
	}
}

// WithListener adds a listener before the latch starts (see [LeaderLatch.AddListener]).
func WithListener(listener Listener) Option {
	return func(cfg *config) error {
		cfg.listeners = append(cfg.listeners, listener)
		return nil
	}
}

// WithStepDownGrace sets how long Close waits for listeners to return; the default is
// 30 s.
func WithStepDownGrace(grace time.Duration) Option {
	return func(cfg *config) error {
		cfg.grace = grace
		return option.CheckPositive("step-down grace", grace)
	}
}

// WithErrorHandler sets a function that gets the errors of the latch, each as a *recipes.OpError. They are a refusal of
// the server, once until it changes or is over; each panic of a listener, as a *recipes.PanicError, which has the
// stack; ErrSessionFull; ErrSequenceExhausted; ErrNotEphemeral, once; and ErrWorkGoesOn, after a second and then once a
// minute. All errors are also logged, a refusal to Observe and ErrWorkGoesOn at Warn, all others at Error. Calls run
// one at a time, in order, under no lock. While a call does not return, up to 1,024 errors wait, and further ones are
// dropped.
func WithErrorHandler(handle func(error)) Option {
	return func(cfg *config) error {
		if handle == nil {
			return errors.New("error handler: nil")
		}
		cfg.errorHandler = handle
		return nil
	}
}
