//go:build linux

package cli

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/child"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/watchdog"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// prepare finds the command, before anything is locked.
func (j *job) prepare() (err error) {
	surviveSIGPIPE()
	j.file, err = child.LookUp(j.command)
	return err
}

// guard runs the command under a lease. It runs on the main thread.
func (j *job) guard(client *recipes.Client, lease *recipes.Lease, signals *guard.Signals) (guard.Result, error) {
	znode := j.shown(lease.Path())
	result, err := guard.Run(guard.Config{
		Lease:          lease,
		SessionTimeout: client.SessionTimeout,
		Grace:          j.grace,
		IsGraceChosen:  j.isGrace,
		Signals:        signals,
		Say:            say,
	}, child.Command{
		Path: j.file,
		Args: j.command,
		Env:  childEnvironment(j.path, znode, lease.FencingToken(), append(outerLocks(), outerLock{lease.Path(), lease.FencingToken()})),
		Tag:  "ZKR_LOCK_ZNODE=" + znode,
	})
	if err != nil {
		return result, startError(j.command[0], err)
	}
	return result, nil
}

// childEnvironment returns the environment of this process, with the variables of this lock in place of an outer
// lock's.
func childEnvironment(path, znode string, token int64, outer []outerLock) []string {
	environment := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name == "ZKR_LOCK_PATH" || name == "ZKR_LOCK_ZNODE" || name == "ZKR_FENCING_TOKEN" || name == outerVariable
	})
	return append(environment,
		"ZKR_LOCK_PATH="+path,
		"ZKR_LOCK_ZNODE="+znode,
		"ZKR_FENCING_TOKEN="+strconv.FormatInt(token, 10),
		outerVariable+"="+encodeOuter(outer),
	)
}

// startError has the code of a shell for a command that could not be executed, or that of a machine which can't
// start processes.
func startError(name string, err error) error {
	code := exit.NotExecutable
	switch {
	case errors.Is(err, watchdog.ErrNotStarted), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		code = exit.Machine
	case errors.Is(err, fs.ErrNotExist):
		code = exit.NotFound
	}
	return exit.Errorf(code, "%s: %w", name, err)
}
