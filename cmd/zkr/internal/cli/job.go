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
	"github.com/zkrecipes/zkrecipes/recipes"
)

// job is a command to be guarded, with the flags that lock and elect share.
type job struct {
	*globals

	grace   time.Duration
	id      string
	path    string
	command []string
	file    string // of the command
}

func (j *job) define(c *cobra.Command) {
	c.Flags().DurationVar(&j.grace, "grace", 5*time.Second, "time between SIGTERM and SIGKILL")
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
	j.path, j.command = before[0], command
	return checkPath(j.path)
}

// checkPath refuses early what no server would take; the client checks the rest.
func checkPath(path string) error {
	if !strings.HasPrefix(path, "/") {
		return exit.Errorf(exit.Usage, "path %q does not begin with /", path)
	}
	if path != "/" && strings.HasSuffix(path, "/") {
		return exit.Errorf(exit.Usage, "path %q ends with /", path)
	}
	return nil
}

// lookUp finds the command, before anything is locked.
func (j *job) lookUp() (err error) {
	j.file, err = child.LookUp(j.command[0])
	return err
}

// guard runs the command under a lease. It runs on the main thread.
func (j *job) guard(client *recipes.Client, lease *recipes.Lease, signals *guard.Signals) (guard.Result, error) {
	znode := j.shown(lease.Path())
	result, err := guard.Run(guard.Config{
		Lease:          lease,
		SessionTimeout: client.SessionTimeout,
		Grace:          j.grace,
		Signals:        signals,
		Say:            say,
	}, child.Command{
		Path: j.file,
		Args: j.command,
		Env:  childEnvironment(j.path, znode, lease.FencingToken()),
		Tag:  "ZKR_LOCK_ZNODE=" + znode,
	})
	if err != nil {
		return result, startError(j.command[0], err)
	}
	return result, nil
}

// childEnvironment is ours with the variables of this lock, in place of those of an outer one.
func childEnvironment(path, znode string, token int64) []string {
	environment := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name == "ZKR_LOCK_PATH" || name == "ZKR_LOCK_ZNODE" || name == "ZKR_FENCING_TOKEN"
	})
	return append(environment,
		"ZKR_LOCK_PATH="+path,
		"ZKR_LOCK_ZNODE="+znode,
		"ZKR_FENCING_TOKEN="+strconv.FormatInt(token, 10),
	)
}

// startError has the code of a shell for a command that could not be executed.
func startError(name string, err error) error {
	code := exit.NotExecutable
	if errors.Is(err, fs.ErrNotExist) {
		code = exit.NotFound
	}
	return exit.Errorf(code, "%s: %w", name, err)
}

// codeOf is the code of a shell for the end of a command.
func codeOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return exit.Signal(status.Signal())
	}
	return status.ExitStatus()
}
