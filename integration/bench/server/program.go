package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Loopback is the address on which programs listen.
const Loopback = "127.0.0.1"

const (
	// startLimit is how long a program may take until it serves.
	startLimit = 30 * time.Second
	// endLimit bounds the end of the program, which is then killed.
	endLimit = 30 * time.Second
)

// Program is a server that runs as a local program with a temporary folder. It listens on the loopback interface itself, so
// that only the kernel is between server and clients.
type Program struct {
	Address string
	name    string
	dir     string
	stop    context.CancelFunc
	said    bytes.Buffer  // on standard error; to be read once ended is closed
	ended   chan struct{} // closed at the end of the program
}

// Launch is how a program is started.
type Launch struct {
	Name string
	// Command returns the command for an empty folder and a free port.
	Command func(ctx context.Context, dir, port string) (*exec.Cmd, error)
	// Serves returns nil once the program serves.
	Serves func(ctx context.Context, address string) error
}

// StartProgram starts a program, and waits until it serves. Close ends it; the end of ctx does not. It never outlives this
// process.
func StartProgram(ctx context.Context, l Launch) (*Program, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "zkrecipes-bench-"+l.Name+"-")
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	p := &Program{Address: net.JoinHostPort(Loopback, port), name: l.Name, dir: dir, ended: make(chan struct{})}
	if err := p.start(ctx, l, port); err != nil {
		return nil, errors.Join(fmt.Errorf("server: %s: %w", l.Name, err), os.RemoveAll(dir))
	}
	return p, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(Loopback, "0"))
	if err != nil {
		return "", fmt.Errorf("server: %w", err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}

func (p *Program) start(ctx context.Context, l Launch, port string) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	cmd, err := l.Command(running, p.dir, port)
	if err != nil {
		stop()
		return err
	}
	cmd.Stderr = &p.said
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = endLimit
	// The program has its own process group, because an interrupt from the terminal is for the bench, which closes its
	// sessions first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		stop()
		return err
	}
	go func() { // ends with the program; halt waits for it
		_ = cmd.Wait() // Close reports an unexpected end
		close(p.ended)
	}()
	if err := p.await(ctx, l); err != nil {
		p.halt()
		return err
	}
	return nil
}

func (p *Program) await(ctx context.Context, l Launch) error {
	serves := func() (struct{}, error) {
		err := l.Serves(ctx, p.Address)
		if ended := p.early(); ended != nil { // another program may serve there by now
			return struct{}{}, backoff.Permanent(ended)
		}
		return struct{}{}, err
	}
	_, err := backoff.Retry(ctx, serves,
		backoff.WithBackOff(backoff.NewConstantBackOff(10*time.Millisecond)), backoff.WithMaxElapsedTime(startLimit))
	return err
}

// early returns an error if the program ended by itself.
func (p *Program) early() error {
	select {
	case <-p.ended:
		return fmt.Errorf("the program has ended by itself: %s", bytes.TrimSpace(p.said.Bytes()))
	default:
		return nil
	}
}

// halt ends the program and waits for it.
func (p *Program) halt() {
	p.stop()
	<-p.ended
}

// Close ends the program and removes its folder. It fails if the program ended by itself. Call it once.
func (p *Program) Close() error {
	err := p.early()
	if err != nil {
		err = fmt.Errorf("server: %s: %w", p.name, err)
	}
	p.halt()
	return errors.Join(err, os.RemoveAll(p.dir))
}
