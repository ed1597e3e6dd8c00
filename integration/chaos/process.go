package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
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

// client is a client process in the nemesis's view. The hands of the nemesis call its methods one after the other.
type client struct {
	harmed         sync.Mutex
	proc           int
	name           string              // of the process that runs, or ran last
	lines          []*faultproxy.Proxy // one to each server
	named          *named              // in front of the lines; nil: the client knows their addresses
	pause, proceed func()
	crash          func() // kills the process, and starts another in its place
	shutdown       func() // its client with functions of Do is to be shut down
	finish         func() // each contender is to acquire once more
	leave          func() // and then the process may go
	kill           func() // ends the process unless it is over

	events []Event       // to be read once gone is closed
	leases atomic.Int64  // so far
	gone   chan struct{} // closed after the end of the process and of its output
	idle   atomic.Int64  // when its contenders were done; 0: not yet

	refused, unmarked atomic.Int64 // writes behind the fenced lock, by the row and by the servers
	err               error        // of the process, set before gone is closed
}

// take adds an event.
func (c *client) take(e Event) {
	c.events = append(c.events, e)
	switch e.What {
	case Granted:
		c.leases.Add(1)
	case Idle:
		c.idle.Store(e.At)
	case Refused:
		if e.Path == fencedPath {
			c.refused.Add(1)
		}
	case Unmarked:
		c.unmarked.Add(1)
	default:
	}
}

// startClient starts this binary again, as a client of the servers behind the lines.
func startClient(s Setup, lines []*faultproxy.Proxy) (*client, error) {
	c := &client{proc: s.Proc, lines: lines}
	if s.findsByName() {
		var err error
		if c.named, err = startNamed(&s, lines); err != nil {
			return nil, err
		}
	} else {
		for _, line := range lines {
			s.Servers = append(s.Servers, line.Addr())
		}
	}
	cmd, in, err := c.spawn(s)
	if err != nil {
		if c.named != nil {
			c.named.close()
		}
		return nil, err
	}
	// Signals and messages to a dead process are lost, which shows in its history.
	c.pause = func() { _ = cmd.Process.Signal(syscall.SIGSTOP) }
	c.proceed = func() { _ = cmd.Process.Signal(syscall.SIGCONT) }
	var died error // of lives that ended by themselves
	c.crash = func() {
		_ = cmd.Process.Kill()
		<-c.gone
		_ = in.Close()
		c.mourn()
		if isKilled(cmd) {
			c.err = died
		}
		died = c.err
		s.Life++
		next, input, err := c.spawn(s)
		if err != nil { // it is missed at the end
			fmt.Fprintf(os.Stderr, "chaos: client %d does not start again: %v\n", s.Proc, err)
			return
		}
		cmd, in = next, input
	}
	c.shutdown = func() { _, _ = io.WriteString(in, "shutdown\n") }
	c.finish = func() { _, _ = io.WriteString(in, "finish\n") }
	c.leave = func() { _, _ = io.WriteString(in, "leave\n") }
	c.kill = func() {
		_ = in.Close()
		select {
		case <-c.gone:
		case <-time.After(healedIn): // it closes its client, and looks for goroutines
			c.proceed()
			_ = cmd.Process.Signal(syscall.SIGQUIT) // prints what it waits for
			<-c.gone                                // with the leases still open
		}
	}
	return c, nil
}

// spawn starts a process, and reads its events until it ends.
func (c *client) spawn(s Setup) (*exec.Cmd, io.WriteCloser, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	setup, err := json.Marshal(s)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(self) //nolint:noctx // it ends with its input
	cmd.Env = append(os.Environ(), WorkerVariable+"="+string(setup))
	var stderr strings.Builder // to be read after the wait for the process
	cmd.Stderr = io.MultiWriter(&stderr, os.Stderr)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	gone := make(chan struct{})
	c.gone, c.name = gone, s.name()
	go func() { // ends with the process; kill and crash wait for it
		defer close(gone)
		c.listen(out)
		if err := cmd.Wait(); err != nil {
			c.err = errors.Join(c.err, fmt.Errorf("%w: %s", err, firstBytes(stderr.String())))
		}
	}()
	return cmd, in, nil
}

// firstBytes returns the beginning of a process's stderr, because a panic's message stands before its stacks.
func firstBytes(text string) string {
	const maxBytes = 2000
	return strings.ToValidUTF8(text[:min(maxBytes, len(text))], "")
}

// isKilled reports whether an ended process was killed.
func isKilled(cmd *exec.Cmd) bool {
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// mourn records the end of a killed process's leases.
func (c *client) mourn() {
	type key struct {
		by  string
		try int
	}
	open := make(map[key]Event)
	for _, e := range c.events {
		switch e.What {
		case Granted:
			open[key{e.By, e.Try}] = e
		case Ended:
			delete(open, key{e.By, e.Try})
		default:
		}
	}
	for _, e := range open {
		e.At, e.Wall, e.What, e.Text = Now(), time.Now().UnixMilli(), Ended, killClient
		c.take(e)
	}
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

// cut closes the client's connections, and reports whether there were any.
func (c *client) cut() (hit bool) {
	for _, line := range c.lines {
		hit = hit || line.Live() > 0
		line.Cut()
	}
	return hit
}

// release takes every fault from the lines.
func (c *client) release() {
	for _, line := range c.lines {
		line.Refuse(false)
		line.Delay(0)
		line.Release()
	}
}
