//go:build unix

package top

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/process"
)

// notifyStops has the signal of Ctrl-Z sent to stops.
func notifyStops(stops chan<- os.Signal) { signal.Notify(stops, syscall.SIGTSTP) }

// stop restores the terminal and stops this process, until a shell continues it.
func (v view) stop() error {
	if process.IsOrphanedGroup() {
		return nil
	}
	v.leave()
	_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	return v.enter()
}
