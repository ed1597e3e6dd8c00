package elections

import (
	"context"
	"fmt"
	"sync"
	"testing/synctest"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// Journal records events in order.
type Journal struct {
	mu    sync.Mutex // protects lines
	lines []string
}

// Add records an event.
func (j *Journal) Add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// Read returns the events since the last read.
func (j *Journal) Read() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

// ReadSettled waits until all pending events have happened, and then reads.
func (j *Journal) ReadSettled() []string {
	synctest.Wait()
	return j.Read()
}

// Listener returns a latch listener that records its calls.
func (j *Journal) Listener(name string) latch.Listener {
	return latch.Listener{
		IsLeader:  func(*recipes.Lease) { j.Add("%s leads", name) },
		NotLeader: func() { j.Add("%s ends", name) },
	}
}

// Leader returns a selector's function that records its terms and leads until the term ends.
func (j *Journal) Leader(name string) selector.TakeLeadership {
	return func(ctx context.Context, _ *recipes.Lease) error {
		j.Add("%s leads", name)
		<-ctx.Done()
		j.Add("%s ends: %v", name, context.Cause(ctx))
		return ctx.Err()
	}
}
