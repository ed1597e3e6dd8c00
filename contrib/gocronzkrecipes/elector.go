package gocronzkrecipes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
)

// ErrNotLeader is returned by IsLeader, and by a task of an [Elector], while the host does not lead. If the latch has trouble,
// the error also matches the error of LeaderLatch.Err.
var ErrNotLeader = errors.New("gocronzkrecipes: not the leader")

// Elector is a gocron.Elector: the host whose latch leads runs the jobs of its scheduler.
type Elector struct {
	latch *latch.LeaderLatch

	mu   sync.Mutex
	term *term // of the latch; nil while it does not lead. Guarded by mu
}

// term is a term of leadership with the tasks that run under it.
type term struct {
	lease *recipes.Lease
	tasks sync.WaitGroup
}

// NewElector returns an elector on a latch. The caller starts and closes the latch. The elector needs no closing: it ends with
// its latch.
func NewElector(l *latch.LeaderLatch) *Elector {
	e := &Elector{latch: l}
	l.AddListener(latch.Listener{IsLeader: e.lead})
	return e
}

// lead lasts as long as the term and the tasks under it. The latch deletes its znode only after lead returns.
func (e *Elector) lead(lease *recipes.Lease) {
	t := &term{lease: lease}
	e.setTerm(t)
	<-lease.Context().Done()
	e.setTerm(nil) // from here on, no task joins t
	t.tasks.Wait()
}

func (e *Elector) setTerm(t *term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = t
}

// joinTerm returns the present term with one more task, and nil while there is none. It goes by the clock, because after a pause
// of the process the context of the term may end late.
func (e *Elector) joinTerm() *term {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil || !time.Now().Before(e.term.lease.TrustedUntil()) {
		return nil
	}
	e.term.tasks.Add(1)
	return e.term
}

// IsLeader returns nil while this host leads, and otherwise an error that matches [ErrNotLeader]. It sends nothing and returns
// at once.
func (e *Elector) IsLeader(context.Context) error {
	t := e.joinTerm()
	if t == nil {
		return e.notLeader()
	}
	t.tasks.Done()
	return nil
}

// Task returns the function of a task, for gocron.NewTask, that runs under a term of leadership. The context that fn gets is
// that of the job, and also ends with the term: context.Cause is then that of term.Context. An orderly end of the term, as by
// Close of the latch, waits for fn. So fn must not close the latch; to step down, it calls term.Release. After a loss, this host
// leads again only when all tasks of the lost term have returned.
//
// If the host does not lead, fn is not called, and the task fails with [ErrNotLeader].
func (e *Elector) Task(fn func(ctx context.Context, term *recipes.Lease) error) func(context.Context) error {
	return func(ctx context.Context) error {
		t := e.joinTerm()
		if t == nil {
			return e.notLeader()
		}
		defer t.tasks.Done()
		return t.run(ctx, fn)
	}
}

// run calls fn with a context that ends with ctx or the term.
func (t *term) run(ctx context.Context, fn func(context.Context, *recipes.Lease) error) error { //nolint:contextcheck // a term has a context of its own
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	held := t.lease.Context()
	defer context.AfterFunc(held, func() { cancel(context.Cause(held)) })() //nolint:contextcheck // as above
	return fn(ctx, t.lease)
}

func (e *Elector) notLeader() error {
	if err := e.latch.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	return ErrNotLeader
}
