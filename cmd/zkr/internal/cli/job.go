package cli

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/child"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/watchdog"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// job is a command to be guarded, with the flags that lock and elect share.
type job struct {
	*globals
	waitFlags

	grace   time.Duration
	isGrace bool // the flag was given
	id      string
	path    string
	command []string
	file    string // of the command
}

func (j *job) define(c *cobra.Command) {
	j.waitFlags.define(c)
	durationVar(c.Flags(), &j.grace, "grace", "", 5*time.Second, "time between SIGTERM and SIGKILL, at most a sixth of the session timeout")
	c.Flags().StringVar(&j.id, "id", "", "what others see of this contender (default host/pid)")
}

// parse takes the path and the command from the arguments.
func (j *job) parse(c *cobra.Command, args []string) error {
	before, command := splitAtDash(c, args)
	switch {
	case len(before) != 1:
		return exit.Errorf(exit.Usage, "one PATH is needed before --")
	case len(command) == 0:
		return exit.Errorf(exit.Usage, "a command is needed behind --")
	case j.grace < 0:
		return exit.Errorf(exit.Usage, "--grace: %v is negative", j.grace)
	}
	if j.id == "" {
		host, _ := os.Hostname()
		j.id = host + "/" + strconv.Itoa(os.Getpid())
	}
	j.path, j.command, j.isGrace = before[0], command, c.Flags().Changed("grace")
	if err := j.check(c); err != nil {
		return err
	}
	return checkPath(j.path)
}

// checkPath refuses early what the client would refuse once there is a session.
func checkPath(path string) error {
	if !strings.HasPrefix(path, "/") {
		return exit.Errorf(exit.Usage, "path %q does not begin with /", path)
	}
	if path != "/" && strings.HasSuffix(path, "/") {
		return exit.Errorf(exit.Usage, "path %q ends with /", path)
	}
	if err := zkutil.ValidatePath(path); err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	return nil
}

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

// childEnvironment is that of this process with the variables of this lock, in place of those of an outer one.
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

// endOf is the error with which zkr ends as the command has ended: with its code, or by its signal.
func endOf(status syscall.WaitStatus) error {
	if status.Signaled() {
		return exit.BySignal(status.Signal())
	}
	return exit.Silent(status.ExitStatus())
}
