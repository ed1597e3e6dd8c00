package load

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/interop/agent"
)

const (
	// headStart is the time between the command and the beginning of a loop, in which all processes read the command.
	headStart = 50 * time.Millisecond
	// eachStart is added for each contender, whose goroutine or thread has to start.
	eachStart = 200 * time.Microsecond
	// loopLimit is how long a loop may take.
	loopLimit = 10 * time.Minute
)

// Crew is the processes of one peer. Its methods are for one goroutine, but a Run may continue during other methods.
type Crew struct {
	Name      string
	processes []*agent.Process
	command   func() (*exec.Cmd, error)
	clock     clock
	dir       string
	loops     atomic.Int64 // prepared so far
}

// Start starts processes, each by the command that a call of command returns.
func Start(name string, processes int, command func() (*exec.Cmd, error)) (*Crew, error) {
	clock, err := newClock()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "zkrecipes-bench-")
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	c := &Crew{Name: name, command: command, clock: clock, dir: dir}
	for range processes {
		cmd, err := command()
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		p, err := agent.Open(cmd)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.processes = append(c.processes, p)
	}
	return c, nil
}

// StartAgain starts a crew like this one, with fresh processes.
func (c *Crew) StartAgain() (*Crew, error) { return Start(c.Name, c.Size(), c.command) }

// Size is the number of processes.
func (c *Crew) Size() int { return len(c.processes) }

// Close ends the processes, which close their sessions.
func (c *Crew) Close() error {
	errs := make([]error, len(c.processes))
	var closing sync.WaitGroup
	for i, p := range c.processes {
		closing.Go(func() { errs[i] = p.Close() })
	}
	closing.Wait()
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// each sends a command to the first processes and joins their errors.
func (c *Crew) each(processes int, command func(i int) []string) error {
	calls := make([]*agent.Call, processes)
	for i, p := range c.processes[:processes] {
		calls[i] = p.GoFor(loopLimit, command(i)...)
	}
	var errs []error
	for _, call := range calls {
		_, err := call.Result()
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return nil
}

// Open opens sessions, divided among the processes; at least one in each.
func (c *Crew) Open(address string, sessions int) error {
	return c.each(c.Size(), func(int) []string {
		return []string{"open", "all", address, strconv.Itoa(max(1, sessions/len(c.processes)))}
	})
}

// CloseSessions closes the sessions. Contenders that wait fail.
func (c *Crew) CloseSessions() error {
	return c.each(c.Size(), func(int) []string { return []string{"close", "all"} })
}

// Now is the time on the clock of the spans.
func (c *Crew) Now() int64 { return c.clock.now() }

// Latch hands an election over in one process, with a pause after each time.
func (c *Crew) Latch(path string, times int, rest time.Duration) ([]Span, error) {
	file := filepath.Join(c.dir, "handovers")
	call := c.processes[0].GoFor(loopLimit, "latch", "latch", file, path, strconv.Itoa(times), strconv.FormatInt(rest.Nanoseconds(), 10))
	if _, err := call.Result(); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return readSpans(file)
}

// Memory is what the first process uses.
type Memory struct {
	Heap, Stacks, Resident int64 // bytes; of the heap and of stacks only after a collection
	Threads                int64 // goroutines, in Go
}

// Memory asks the first process.
func (c *Crew) Memory() (Memory, error) {
	n, err := c.numbers("memory", "all")
	if err != nil {
		return Memory{}, err
	}
	return Memory{n[0], n[1], n[2], n[3]}, nil
}

// numbers sends a command to the first process, which answers with numbers.
func (c *Crew) numbers(command ...string) ([]int64, error) {
	words, err := c.processes[0].GoFor(loopLimit, command...).Result()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	values := make([]int64, len(words))
	for i, word := range words {
		if values[i], err = strconv.ParseInt(word, 10, 64); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return values, nil
}
