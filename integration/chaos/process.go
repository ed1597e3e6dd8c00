package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
)

// WorkerVariable holds the Setup of a process that is to be a client in place of a test.
const WorkerVariable = "ZKRECIPES_CHAOS_WORKER"

// RunWorker is the body of such a process, and returns its exit status.
func RunWorker(setup string) int {
	var s Setup
	err := json.Unmarshal([]byte(setup), &s)
	if err == nil {
		err = Work(context.Background(), s, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "chaos: client %d: %v\n", s.Proc, err)
		return 1
	}
	return 0
}

// client is a client process as the nemesis sees it.
type client struct {
	proc           int
	lines          []*faultproxy.Proxy // one to each server
	pause, proceed func()
	finish         func() // each contender is to acquire once more and go
	kill           func() // ends the process unless it has ended by itself

	events []Event       // to be read once gone is closed
	leases atomic.Int64  // so far
	gone   chan struct{} // closed when the history is complete
	left   atomic.Int64  // when it was done, 0: not yet
	err    error         // of the process, set before gone is closed
}

// take adds an event.
func (c *client) take(e Event) {
	c.events = append(c.events, e)
	switch e.What {
	case Granted:
		c.leases.Add(1)
	case Left:
		c.left.Store(e.At)
	default:
	}
}

// startClient starts this binary again, as a client of the servers behind the lines.
func startClient(s Setup, lines []*faultproxy.Proxy) (*client, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for _, line := range lines {
		s.Servers = append(s.Servers, line.Addr())
	}
	setup, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	c := &client{proc: s.Proc, lines: lines, gone: make(chan struct{})}
	cmd := exec.Command(self) //nolint:noctx // it ends with its input
	cmd.Env = append(os.Environ(), WorkerVariable+"="+string(setup))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	// Signals and words to a process that has ended are lost, which shows in its history.
	c.pause = func() { _ = cmd.Process.Signal(syscall.SIGSTOP) }
	c.proceed = func() { _ = cmd.Process.Signal(syscall.SIGCONT) }
	c.finish = func() { _, _ = io.WriteString(in, "finish\n") }
	c.kill = func() {
		_ = in.Close()
		select {
		case <-c.gone:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-c.gone
		}
	}
	go func() { // ends with the process; kill waits for it
		defer close(c.gone)
		c.listen(out)
		c.err = cmd.Wait()
	}()
	return c, nil
}

func (c *client) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintf(os.Stderr, "chaos: client %d says %q\n", c.proc, lines.Text())
			continue
		}
		c.take(e)
	}
}

// release takes every fault from the lines.
func (c *client) release() {
	for _, line := range c.lines {
		line.Refuse(false)
		line.Delay(0)
		line.Release()
	}
}
