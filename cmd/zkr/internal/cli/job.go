package cli

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
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

// checkPath refuses invalid paths before a session is opened.
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

// endOf returns the error that makes zkr end like the command, with its code or by its signal.
func endOf(status syscall.WaitStatus) error {
	if status.Signaled() {
		return exit.BySignal(status.Signal())
	}
	return exit.Silent(status.ExitStatus())
}
