//go:build !linux

package cli

import (
	"runtime"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// prepare refuses each command, before anything is locked.
func (j *job) prepare() error {
	return exit.Errorf(exit.Machine, "running a command under a lock needs Linux: on %s, zkr can't end all processes of the command before the lock passes on", runtime.GOOS)
}

// guard is not reached, because prepare refuses.
func (j *job) guard(*recipes.Client, *recipes.Lease, *guard.Signals) (guard.Result, error) {
	return guard.Result{}, j.prepare()
}
