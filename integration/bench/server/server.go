// Package server has the servers under load. Package real below it starts ZooKeeper, etcd and Redis. This package has the
// common code, and runs package zktest in a separate process.
package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/zkrecipes/zkrecipes/integration/bench/load"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Server is one running server.
type Server interface {
	Addr() string
	// Queued is how many contenders stand at a path.
	Queued(ctx context.Context, path string) (int, error)
	// Watches is the number of watches on all paths; 0 if the server does not report it.
	Watches(ctx context.Context) (int, error)
	Close() error
}

// RoleZKTest is the role of a process that is package zktest.
const RoleZKTest = "zktest"

// ServeZKTest makes this process package zktest until its input ends.
func ServeZKTest() error {
	s, err := zktest.Start()
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return errors.Join(Announce(s.Addr()), s.Close())
}

// Announce sends the address of the server to the parent process, and returns at the end of the input.
func Announce(address string) error {
	fmt.Println(address)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// Process is a server that runs as another process of this program.
type Process struct {
	Address string
	cmd     *exec.Cmd
	in      io.Closer
}

// StartProcess starts this program in a role and reads its address.
func StartProcess(ctx context.Context, role ...string) (*Process, error) {
	cmd, err := load.Self(ctx, role...)
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	p := &Process{cmd: cmd, in: in}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("server: %s says no address: %w", role[0], err), p.Close())
	}
	p.Address = strings.TrimSpace(line)
	return p, nil
}

// Close ends the process.
func (p *Process) Close() error {
	p.in.Close()
	return p.cmd.Wait()
}
