package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// referee watches every term of an election, stores the leaders' writes, and records violations.
type referee struct {
	began time.Time

	mu       sync.Mutex // protects what is below
	terms    []*term
	changed  chan struct{}           // closed and replaced when a term begins
	harmed   map[string]judge.Excuse // by the paths of znodes
	tokens   judge.Tokens[*term]
	holders  judge.Holders[*term]
	store    judge.Store // what the leaders write to
	overlaps map[string][]time.Duration
	history  []string
	faults   []string
}

// term is one term of leadership.
type term struct {
	by      *contender
	lease   *recipes.Lease
	began   time.Time
	rivals  []time.Time // when others began while it stood
	working bool        // its work is still running
	loss    string      // the action against it that the library can't prevent; "": none
}

func newReferee() *referee {
	return &referee{
		began: time.Now(), changed: make(chan struct{}),
		harmed: map[string]judge.Excuse{}, overlaps: map[string][]time.Duration{},
	}
}

// recordLocked keeps an event for the report.
func (j *referee) recordLocked(format string, args ...any) {
	j.history = append(j.history, fmt.Sprintf("%12v ", time.Since(j.began))+fmt.Sprintf(format, args...))
}

func (j *referee) fault(format string, args ...any) {
	j.recordLocked("FAULT: "+format, args...)
	j.faults = append(j.faults, fmt.Sprintf(format, args...))
}

// verdict is empty if all was well.
func (j *referee) verdict() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.faults) == 0 {
		return ""
	}
	return strings.Join(j.faults, "\n") + "\n\nhistory:\n" + strings.Join(j.history, "\n")
}

func (r *term) stands() bool { return r.lease.Context().Err() == nil }

// lasts reports whether the next term has to wait. The work of a released term has to return first.
func (r *term) lasts() bool {
	return r.stands() || r.working && errors.Is(context.Cause(r.lease.Context()), recipes.ErrReleased)
}

// excuseLocked returns the excuse of a term.
func (j *referee) excuseLocked(r *term) judge.Excuse { return j.harmed[r.lease.Path()] }

// harm records znodes that are about to be deleted without the knowledge of their owners.
func (j *referee) harm(how string, excuse judge.Excuse, znodes ...string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.recordLocked("%s: %d znodes", how, len(znodes))
	for _, znode := range znodes {
		j.harmed[znode] = excuse
	}
	for _, r := range j.terms {
		if r.stands() && slices.Contains(znodes, r.lease.Path()) {
			r.loss = how
		}
	}
}

// lead is the work of a leader: it writes until its term ends, takes a moment to stop, and
// writes a last time.
func (j *referee) lead(c *contender, lease *recipes.Lease) {
	r := j.begin(c, lease)
	for r.stands() {
		j.write(r)
		select {
		case <-time.After(250 * time.Millisecond):
		case <-lease.Context().Done():
		}
	}
	j.end(r)
	bubble.Pause(c.reaction)
	j.write(r)
	j.mu.Lock()
	defer j.mu.Unlock()
	r.working = false
}

func (j *referee) begin(c *contender, lease *recipes.Lease) *term {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := &term{by: c, lease: lease, began: time.Now(), working: true}
	j.recordLocked("%v: token %d", c, lease.FencingToken())
	for _, other := range j.holders.Grant(r, (*term).lasts) {
		isExcused := j.excuseLocked(other) != judge.None || j.excuseLocked(r) != judge.None
		switch {
		case other.stands() && isExcused:
			other.rivals = append(other.rivals, r.began)
		case other.stands():
			j.fault("%v leads while %v does", c, other.by)
		case !isExcused:
			j.fault("%v leads while %v has not finished", c, other.by)
		}
	}
	if before, grows := j.tokens.Grant(lease.FencingToken(), r); !grows && j.excuseLocked(r) == judge.None {
		j.fault("%v: token %d after %d", c, lease.FencingToken(), before.lease.FencingToken())
	}
	j.terms = append(slices.DeleteFunc(j.terms, func(r *term) bool { return !r.working && !r.stands() }), r)
	close(j.changed)
	j.changed = make(chan struct{})
	return r
}

// end measures how long a term continues beside another one.
func (j *referee) end(r *term) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.recordLocked("%v: %v", r.by, context.Cause(r.lease.Context()))
	if len(r.rivals) > 0 {
		j.overlaps[r.loss] = append(j.overlaps[r.loss], time.Since(r.rivals[0]))
	}
}

// write is a leader's write to the guarded store, which refuses tokens older than one that it saw.
func (j *referee) write(r *term) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if token := r.lease.FencingToken(); !j.store.Write(token) && r.stands() && j.excuseLocked(r) == judge.None {
		j.fault("%v leads, but its token %d is older than %d", r.by, token, j.store.Highest())
	}
}

// leader waits for a valid, unharmed term other than before.
func (j *referee) leader(ctx context.Context, before *term) (*term, error) {
	for {
		j.mu.Lock()
		changed := j.changed
		for _, r := range j.terms {
			if r != before && r.stands() && j.excuseLocked(r) == judge.None {
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
