package latch

import (
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
)

// Option configures a [LeaderLatch].
type Option func(*config) error

// config is what the options of a latch set.
type config struct {
	id           []byte // nil: the client's
	name         string
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
	// Silent calls no listener. It is the default, as in Curator.
	Silent CloseMode = iota
	// NotifyLeader calls NotLeader, if the latch leads, before the znode is deleted.
	NotifyLeader
)

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

func (m CloseMode) check() error {
	if m != Silent && m != NotifyLeader {
		return fmt.Errorf("close mode %d is unknown", int(m))
	}
	return nil
}

// WithCloseMode sets what Close does; the default is Silent.
func WithCloseMode(mode CloseMode) Option {
	return func(cfg *config) error {
		cfg.mode = mode
		return mode.check()
	}
}

// WithListener adds a listener before the latch starts: see [LeaderLatch.AddListener].
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

// WithErrorHandler sets a function that gets the errors of the latch, each as a *recipes.OpError:
// a refusal of the server, once until it changes or is over; each panic of a listener, as a
// *recipes.PanicError, which has the stack; ErrSessionFull; and ErrSequenceExhausted. They are also logged: a refusal
// to Observe at Warn, all others at Error. Calls come one at a time, in order, under no lock.
func WithErrorHandler(handle func(error)) Option {
	return func(cfg *config) error {
		if handle == nil {
			return errors.New("error handler: nil")
		}
		cfg.errorHandler = handle
		return nil
	}
}
