//go:build !linux

package process

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// DieOf ends this process by a signal, as if it had not caught the signal. It returns where a process can't send itself
// the signal, as on Windows, and for SIGQUIT, after which Go would print the stacks of all goroutines.
func DieOf(s syscall.Signal) {
	if s == syscall.SIGQUIT {
		return
	}
	signal.Reset(s)
	self, err := os.FindProcess(os.Getpid())
	if err != nil || self.Signal(s) != nil {
		return
	}
	<-time.After(maxDying)
}

// maxDying is how long another thread may take to end the process.
const maxDying = time.Second
