//go:build !unix

package main

import (
	"errors"
	"syscall"
)

// This system has no signals that stop a process nicely or pause it: workers run here,
// the demonstration does not.
const (
	stopNicely = syscall.SIGTERM
	crash      = syscall.SIGKILL
	pause      = syscall.Signal(-1)
)

func (p *process) resume() error { return errors.ErrUnsupported }
