//go:build unix

package main

import "syscall"

// The three ways in which the demonstration removes a leader.
const (
	stopNicely = syscall.SIGTERM // it is asked to stop, as in every rolling update
	crash      = syscall.SIGKILL
	pause      = syscall.SIGSTOP // it hangs, as in a suspended machine
)

// resume ends a pause.
func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
