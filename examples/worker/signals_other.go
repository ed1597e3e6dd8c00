//go:build !unix

package main

import (
	"errors"
	"syscall"
)

// This system has no signals to stop or pause a process, so the demonstration does not run here, but workers do.
const (
	stopNicely = syscall.SIGTERM
	crash      = syscall.SIGKILL
	pause      = syscall.Signal(-1)
)

func (p *process) resume() error { return errors.ErrUnsupported }
