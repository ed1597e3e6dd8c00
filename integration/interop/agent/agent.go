package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long one command, and the end of the process, may take.
const patience = time.Minute

var errEnded = errors.New("the process has ended")

// Process is a running peer. Its methods may be called concurrently.
type Process struct {
	cmd  *exec.Cmd
	read chan struct{} // closed by the reader of answers when there are no more

	mu     sync.Mutex // guards what follows
	in     io.WriteCloser
	last   int           // number of the latest call
	calls  map[int]*Call // sent, not answered
	ended  bool
	killed bool
}

// Start starts the command with its arguments. The process ends with the test.
func Start(tb testing.TB, cmd *exec.Cmd) *Process {
	tb.Helper()
	p, err := Open(cmd)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

// Open is Start for a process that outlives a test. The caller has to close it.
func Open(cmd *exec.Cmd) (*Process, error) {
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	p := &Process{cmd: cmd, in: in, read: make(chan struct{}), calls: map[int]*Call{}}
	go p.answers(out) // ends with the process; joined by Close
	return p, nil
}

// answers hands the answers to their calls.
func (p *Process) answers(out io.Reader) {
	defer close(p.read)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		number, answer, _ := strings.Cut(lines.Text(), " ")
		n, _ := strconv.Atoi(number)
		p.mu.Lock()
		call := p.calls[n]
		delete(p.calls, n)
		p.mu.Unlock()
		if call != nil {
			call.answer(answer)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, call := range p.calls {
		call.fail(errEnded)
	}
}

// Go sends a command and does not wait for its answer.
func (p *Process) Go(command ...string) *Call { return p.GoFor(patience, command...) }

// GoFor is Go for a slow command.
func (p *Process) GoFor(limit time.Duration, command ...string) *Call {
	call := &Call{text: strings.Join(command, " "), limit: limit, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		call.fail(errEnded)
		return call
	}
	p.last++
	p.calls[p.last] = call
	if _, err := fmt.Fprintln(p.in, p.last, escape(command)); err != nil {
		delete(p.calls, p.last)
		call.fail(err)
	}
	return call
}

// Call runs one command and returns the words of its answer. A failure is fatal.
func (p *Process) Call(tb testing.TB, command ...string) []string {
	tb.Helper()
	return p.Go(command...).Wait(tb)
}

// Do is Call for answers of one word.
func (p *Process) Do(tb testing.TB, command ...string) string {
	tb.Helper()
	return strings.Join(p.Call(tb, command...), " ")
}

// Pause stops the process (SIGSTOP), connections and all, until Resume.
func (p *Process) Pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume continues a paused process.
func (p *Process) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Kill ends the process at once (SIGKILL).
func (p *Process) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
	return p.cmd.Process.Kill()
}

// Close ends the process by its input, so that it closes its sessions, and waits for its end.
func (p *Process) Close() error {
	_ = p.Resume() // if it was paused
	late := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	p.in.Close()
	<-p.read
	err := p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && !p.killed {
		return fmt.Errorf("agent: %s: %w", p.cmd.Path, err)
	}
	return nil
}

// Call is a command under way.
type Call struct {
	text  string
	limit time.Duration
	done  chan struct{} // closed once the following are settled
	words []string
	err   error
}

// Done is closed when the answer is there.
func (c *Call) Done() <-chan struct{} { return c.done }

// Result waits for the answer.
func (c *Call) Result() ([]string, error) {
	late := time.NewTimer(c.limit)
	defer late.Stop()
	select {
	case <-c.done:
		return c.words, c.err
	case <-late.C:
		return nil, fmt.Errorf("%s: no answer", c.text)
	}
}

// Wait is Result for a call that must succeed.
func (c *Call) Wait(tb testing.TB) []string {
	tb.Helper()
	words, err := c.Result()
	if err != nil {
		tb.Fatal(err)
	}
	return words
}

func (c *Call) answer(line string) {
	verdict, rest, some := strings.Cut(line, " ")
	words, err := unescape(rest, some)
	switch {
	case err != nil:
		c.fail(err)
	case verdict == "ok":
		c.words = words
		close(c.done)
	default:
		c.fail(errors.New(strings.Join(words, " ")))
	}
}

func (c *Call) fail(err error) {
	c.err = fmt.Errorf("%s: %w", c.text, err)
	close(c.done)
}
