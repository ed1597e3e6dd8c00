// Withzk runs a command with a ZooKeeper. It starts servers in containers, passes their addresses in
// ZKRECIPES_SERVERS, removes them when the command ends, and exits with the command's status.
//
//	withzk go test ./...
//	withzk -nodes 3 -- go run ./examples/stock
//
// If ZKRECIPES_SERVERS is already set, the command just runs. Package ensemble documents the choice of the image.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
)

const (
	envServers = "ZKRECIPES_SERVERS"
	// statusFailed is a shell's exit status for a command that can't run. Signals are added to statusSignal, as in a
	// shell.
	statusFailed = 126
	statusSignal = 128
)

func main() {
	nodes := flag.Int("nodes", 1, "number of servers")
	tick := flag.Duration("tick", 500*time.Millisecond, "tick time; the shortest session lasts two")
	var jvm stringList
	flag.Var(&jvm, "jvm", "flag for the servers' Java, such as -Dzookeeper.forceSync=no; may be repeated")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: withzk [flags] [--] command [argument …]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	status, err := run(ensemble.Config{Nodes: *nodes, TickTime: *tick, JVMFlags: jvm}, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "withzk:", err)
	}
	os.Exit(status)
}

// run returns the status to exit with. Signals go to the command, or end the start when there is no command yet.
func run(cfg ensemble.Config, args []string) (status int, err error) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if os.Getenv(envServers) != "" {
		return child(args, os.Environ(), signals)
	}
	e, err := start(cfg, signals)
	if err != nil {
		return statusFailed, err
	}
	defer func() {
		if closeErr := e.Close(); closeErr != nil {
			err = errors.Join(err, closeErr)
		}
	}()
	return child(args, append(os.Environ(), envServers+"="+strings.Join(e.Servers(), ",")), signals)
}

// start starts the servers unless a signal arrives first.
func start(cfg ensemble.Config, signals <-chan os.Signal) (*ensemble.Ensemble, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	go func() { // ends with start, which closes done
		select {
		case s := <-signals:
			cancel(fmt.Errorf("%v", s))
		case <-done:
		}
	}()
	return ensemble.Start(ctx, cfg)
}

// child runs the command on our own standard streams, in our process group.
func child(args, env []string, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return statusFailed, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the command; received below
	for {
		select {
		case s := <-signals:
			// An error means that the command just ended.
			_ = cmd.Process.Signal(s)
		case err := <-ended:
			return exitStatus(err)
		}
	}
}

func exitStatus(err error) (int, error) {
	var exit *exec.ExitError
	if err == nil {
		return 0, nil
	}
	if !errors.As(err, &exit) {
		return statusFailed, err
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return statusSignal + int(ws.Signal()), nil
	}
	return exit.ExitCode(), nil
}

// stringList collects the values of a flag given more than once.
type stringList []string

func (l *stringList) String() string { return strings.Join(*l, " ") }

func (l *stringList) Set(value string) error {
	*l = append(*l, value)
	return nil
}
