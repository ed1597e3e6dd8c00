package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// process is a worker in its own operating system process: this program, run again as `worker serve`.
type process struct {
	name   string
	url    string
	cmd    *exec.Cmd
	quit   func()        // asks for the end
	exited chan struct{} // closed by the goroutine that waits for cmd
	err    error         // how it ended; set before exited is closed
}

// startProcess returns once the worker takes part in the election. Its events are appended to the journal. ctx bounds
// the start. The worker ends by stop, or at any end of this process, when it reads end of file from a pipe that only
// this process holds open.
func startProcess(ctx context.Context, o options, name string, events *journal, stderr io.Writer) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	running, quit := context.WithCancel(context.WithoutCancel(ctx))
	cmd := exec.CommandContext(running, self, "serve",
		"-id", name,
		"-listen", "127.0.0.1:0",
		"-until-eof",
		"-every", o.every.String(),
		"-work", o.work.String(),
		"-session-timeout", o.sessionTimeout.String(),
	)
	// In the environment, because arguments are there for everyone to read and the DSN
	// may hold a password.
	cmd.Env = append(os.Environ(), "WORKER_DB="+o.db, "ZKRECIPES_SERVERS="+o.zk)
	cmd.Stdout = &lines{journal: events}
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		quit()
		return nil, err
	}
	p := &process{name: name, cmd: cmd, quit: quit, exited: make(chan struct{})}
	cmd.Cancel = func() error {
		_ = p.resume() // a paused process would not see the end of its input
		return stdin.Close()
	}
	cmd.WaitDelay = 15 * time.Second // then it is killed
	seen := len(events.all())
	if err := cmd.Start(); err != nil {
		quit()
		return nil, fmt.Errorf("worker process: %w", err)
	}
	go func() { // ends with the process, which ends by stop at the latest
		p.err = cmd.Wait()
		close(p.exited)
	}()

	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with the start
		select {
		case <-p.exited:
			cancel()
		case <-starting.Done():
		}
	}()
	e, _, err := events.await(starting, seen, func(e event) bool { return e.Worker == name && e.Msg == saysServing })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s did not come up", name), p.stop())
	}
	p.url = e.URL
	return p, nil
}

// stop asks the worker to end, and waits until it does. It is idempotent.
func (p *process) stop() error {
	p.quit()
	<-p.exited
	// Wait reports the cancelled context when the process itself ended well.
	if errors.Is(p.err, context.Canceled) || errors.Is(p.err, os.ErrClosed) {
		return nil
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w", p.name, p.err)
	}
	return nil
}
