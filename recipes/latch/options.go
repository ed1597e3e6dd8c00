package latch

import (
	"errors"
	"fmt"
	"time"
)

// Option configures a [LeaderLatch].
type Option func(*config) error

// config is what the options of a latch say.
type config struct {
	id        []byte // nil: the host's address
	mode      CloseMode
	grace     time.Duration
	listeners []Listener
	handle    func(error) // nil: errors are logged alone
}

func configure(opts []Option) (config, error) {
	cfg := config{grace: defaultGrace}
	for _, opt := range opts {
		if opt == nil {
			return config{}, errors.New("nil option")
		}
		if err := opt(&cfg); err != nil {
			return config{}, err
		}
	}
	return cfg, nil
}

// CloseMode says whether listeners hear of the end of leadership when their own latch
// is closed.
type CloseMode int

const (
	// Silent calls no listener any more. It is the default, as in Curator.
	Silent CloseMode = iota
	// NotifyLeader calls NotLeader, if the latch leads, before the znode is deleted.
	NotifyLeader
)

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
		if grace <= 0 {
			return errors.New("step-down grace: not positive")
		}
		cfg.grace = grace
		return nil
	}
}

// WithErrorHandler sets who is told what keeps the latch from standing, leading or observing,
// each time as a *recipes.OpError: a refusal of the server, once until it changes or is over;
// each panic of a listener, as a *recipes.PanicError, which has the stack; and that the sequence
// numbers have run out. All that is logged at Error, too, a refused observation at Warn. Calls
// come one at a time, in order, under no lock.
func WithErrorHandler(handle func(error)) Option {
	return func(cfg *config) error {
		if handle == nil {
			return errors.New("error handler: nil")
		}
		cfg.handle = handle
		return nil
	}
}
