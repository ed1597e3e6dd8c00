package latch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// judge watches every term of an election, keeps what the leaders write to, and notes
// what must not be.
type judge struct {
	began time.Time

	mu       sync.Mutex // protects what is below
	terms    []*reign
	changed  chan struct{} // closed and replaced when a term begins
	doomed   map[string]bool
	latest   int64 // token of the latest grant
	accepted int64 // token of the latest write that the store has taken
	stale    int   // writes that it has refused
	overlaps map[string][]time.Duration
	history  []string
	faults   []string
}

// reign is one term of leadership.
type reign struct {
	by      *contender
	lease   *recipes.Lease
	began   time.Time
	rivals  []time.Time // when others began while it stood
	working bool        // its work has not returned yet
	loss    string      // what was done to it that the library can't prevent; "": nothing
}

func newJudge() *judge {
	return &judge{
		began: time.Now(), changed: make(chan struct{}),
		doomed: map[string]bool{}, overlaps: map[string][]time.Duration{},
	}
}

// note is called under the lock.
func (j *judge) note(format string, args ...any) {
	j.history = append(j.history, fmt.Sprintf("%12v ", time.Since(j.began))+fmt.Sprintf(format, args...))
}

func (j *judge) fault(format string, args ...any) {
	j.note("FAULT: "+format, args...)
	j.faults = append(j.faults, fmt.Sprintf(format, args...))
}

// verdict is empty if all was well.
func (j *judge) verdict() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.faults) == 0 {
		return ""
	}
	return strings.Join(j.faults, "\n") + "\n\nhistory:\n" + strings.Join(j.history, "\n")
}

func (r *reign) stands() bool { return r.lease.Context().Err() == nil }

// excused tells whether no client can know in time that the term is over. Called under
// the lock.
func (j *judge) excused(r *reign) bool { return j.doomed[r.lease.Path()] }

// doom notes znodes that are about to go behind the back of their owners.
func (j *judge) doom(how string, znodes ...string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.note("%s: %d znodes", how, len(znodes))
	for _, znode := range znodes {
		j.doomed[znode] = true
	}
	for _, r := range j.terms {
		if r.stands() && slices.Contains(znodes, r.lease.Path()) {
			r.loss = how
		}
	}
}

// lead is the work of a leader: it writes until its term ends, takes a moment to stop, and
// writes a last time.
func (j *judge) lead(c *contender, lease *recipes.Lease) {
	r := j.begin(c, lease)
	for r.stands() {
		j.write(r)
		select {
		case <-time.After(250 * time.Millisecond):
		case <-lease.Context().Done():
		}
	}
	j.end(r)
	pause(c.reaction)
	j.write(r)
	j.mu.Lock()
	defer j.mu.Unlock()
	r.working = false
}

func (j *judge) begin(c *contender, lease *recipes.Lease) *reign {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := &reign{by: c, lease: lease, began: time.Now(), working: true}
	j.note("%v: token %d", c, lease.FencingToken())
	for _, other := range j.terms {
		excused := j.excused(other) || j.excused(r)
		switch {
		case other.stands() && excused:
			other.rivals = append(other.rivals, r.began)
		case other.stands():
			j.fault("%v leads while %v does", c, other.by)
		case other.working && !excused && errors.Is(context.Cause(other.lease.Context()), recipes.ErrReleased):
			j.fault("%v leads while %v has not finished", c, other.by)
		}
	}
	if token := lease.FencingToken(); token > j.latest {
		j.latest = token
	} else if !j.excused(r) {
		j.fault("%v: token %d after %d", c, token, j.latest)
	}
	j.terms = append(slices.DeleteFunc(j.terms, func(r *reign) bool { return !r.working && !r.stands() }), r)
	close(j.changed)
	j.changed = make(chan struct{})
	return r
}

// end measures how long a term has gone on beside another one.
func (j *judge) end(r *reign) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.note("%v: %v", r.by, context.Cause(r.lease.Context()))
	if len(r.rivals) > 0 {
		j.overlaps[r.loss] = append(j.overlaps[r.loss], time.Since(r.rivals[0]))
	}
}

// write is what a leader does to the guarded store, which refuses tokens that are older
// than one that it has seen.
func (j *judge) write(r *reign) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch token := r.lease.FencingToken(); {
	case token >= j.accepted:
		j.accepted = token
	case r.stands() && !j.excused(r):
		j.fault("%v leads, but its token %d is older than %d", r.by, token, j.accepted)
	default:
		j.stale++
	}
}

// leader waits for a term that stands and that nothing was done to, other than before.
func (j *judge) leader(ctx context.Context, before *reign) (*reign, error) {
	for {
		j.mu.Lock()
		changed := j.changed
		for _, r := range j.terms {
			if r != before && r.stands() && !j.excused(r) {
				j.mu.Unlock()
				return r, nil
			}
		}
		j.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
