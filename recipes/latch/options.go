package latch

import (
	"errors"
	"fmt"
	"time"
)

// Option configures a [LeaderLatch].
type Option func(*LeaderLatch) error

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
	return func(l *LeaderLatch) error {
		if len(id) > maxID {
			return fmt.Errorf("id of %d bytes: more than %d", len(id), maxID)
		}
		l.queue.Data = []byte(id)
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
	return func(l *LeaderLatch) error {
		l.mode = mode
		return mode.check()
	}
}

// WithListener adds a listener before the latch starts: see [LeaderLatch.AddListener].
func WithListener(listener Listener) Option {
	return func(l *LeaderLatch) error {
		l.AddListener(listener)
		return nil
	}
}

// WithStepDownGrace sets how long Close waits for listeners to return; the default is
// 30 s.
func WithStepDownGrace(grace time.Duration) Option {
	return func(l *LeaderLatch) error {
		if grace <= 0 {
			return errors.New("step-down grace: not positive")
		}
		l.grace = grace
		return nil
	}
}
