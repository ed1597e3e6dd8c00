package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/interop/agent"
)

// Load is the work of a crew's contenders. Contender i is in process i modulo the number of processes, in one of its sessions.
type Load struct {
	Path       string
	Locks      int // at Path, or with several of them at Path-0, Path-1, …; contender i is at lock i modulo Locks
	Basket     int // locks that each acquisition takes together, drawn from all; 0: a single lock
	Contenders int
	Pairs      int           // acquisitions, shared by the contenders of each process; 0: one for each contender
	Hold       time.Duration // in the critical section
}

// Loop runs a load in all processes at once and returns the acquisitions.
func (c *Crew) Loop(l Load) ([]Span, error) {
	r, err := c.Prepare(l)
	if err != nil {
		return nil, err
	}
	r.Start()
	return r.Wait()
}

// Run is a load with its contenders.
type Run struct {
	Began   int64 // on the clock of the spans; valid after Start
	crew    *Crew
	load    Load
	baskets [][]int // by turn; nil without
	name    string
	used    int // processes
	calls   []*agent.Call
}

// Prepare makes the contenders of a load.
func (c *Crew) Prepare(l Load) (*Run, error) {
	r := &Run{crew: c, load: l, baskets: l.baskets(), name: fmt.Sprintf("loop-%d", c.loops.Add(1)), used: min(len(c.processes), l.Contenders)}
	file := ""
	if l.Basket > 0 {
		file = filepath.Join(c.dir, "baskets")
		if err := writeBaskets(file, l, r.baskets); err != nil {
			return nil, fmt.Errorf("load: %w", err)
		}
	}
	err := c.each(r.used, func(i int) []string {
		command := append([]string{"prepare", r.name, l.Path}, numbers(int64(l.Locks), int64(i), int64(r.used), int64(l.Contenders))...)
		return append(command, file)
	})
	return r, err
}

// Start begins in all processes at the same instant.
func (r *Run) Start() {
	r.Began = r.crew.Now() + (headStart + time.Duration(r.load.Contenders)*eachStart).Nanoseconds()
	for i, p := range r.crew.processes[:r.used] {
		pairs := r.load.Pairs / r.used
		if i < r.load.Pairs%r.used {
			pairs++
		}
		command := append([]string{"loop", r.name, r.file(i)}, numbers(r.Began, int64(pairs), r.load.Hold.Nanoseconds())...)
		r.calls = append(r.calls, p.GoFor(loopLimit, command...))
	}
}

func (r *Run) file(i int) string { return filepath.Join(r.crew.dir, fmt.Sprintf("%s-%d", r.name, i)) }

// Ended reports whether a process is through.
func (r *Run) Ended() bool {
	for _, call := range r.calls {
		select {
		case <-call.Done():
			return true
		default:
		}
	}
	return false
}

// Wait waits for all processes and returns the acquisitions.
func (r *Run) Wait() ([]Span, error) {
	var spans []Span
	var errs []error
	for i, call := range r.calls {
		_, err := call.Result()
		if err == nil {
			var share []Span
			share, err = readSpans(r.file(i))
			spans = append(spans, share...)
		}
		_ = os.Remove(r.file(i)) // a failed process may have no file
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%s: %w", r.crew.Name, err)
	}
	if r.baskets != nil {
		for i, s := range spans {
			spans[i].Items = r.baskets[s.Turn]
		}
	}
	return spans, nil
}

// Hold takes all locks of a load, and returns a function that releases them and returns the time of the release as a
// span.
func (c *Crew) Hold(l Load) (release func() (Span, error), err error) {
	times, err := c.numbers("hold", "holder", l.Path, strconv.Itoa(l.Locks))
	if err != nil {
		return nil, err
	}
	return func() (Span, error) {
		end, err := c.numbers("release", "holder")
		if err != nil {
			return Span{}, err
		}
		return Span{Called: times[0], Acquired: times[1], Releasing: end[0], Released: end[1]}, nil
	}, nil
}
