// Command withmariadb runs a command with a private MariaDB beside it, named by
// STOCK_DB and WORKER_DB in the command's environment, and exits with its status:
//
//	withmariadb -- go run ./examples/stock
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/zkrecipes/zkrecipes/internal/mariadb"
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: withmariadb -- command [argument…]")
		os.Exit(2)
	}
	status, err := run(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "withmariadb:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}

func run(args []string) (status int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server, err := mariadb.Start(ctx)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()

	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "STOCK_DB="+server.DSN(), "WORKER_DB="+server.DSN())
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1), nil // -1 when a signal ended it
	}
	return 0, err
}
