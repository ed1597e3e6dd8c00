package trace

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
)

// Hooks are functions of the user. Each may be nil. They run under no lock, each in its own goroutine, so that neither a panic
// nor runtime.Goexit in one has an effect. Package recipes has the public form, with an argument type for each function.
type Hooks struct {
	AcquireStart func(ctx context.Context, s Subject) context.Context
	AcquireEnd   func(ctx context.Context, e End)
	LeaseEnd     func(ctx context.Context, e End)
	StateChange  func(e StateChange)
}

// Subject identifies an acquisition.
type Subject struct {
	Recipe, Name, Path string
	Try                bool
}

// End is the end of an acquisition, or of the lease that it acquired.
type End struct {
	Subject

	Token   int64
	Permits int   // 0: one lease
	Err     error // of the acquisition, or the cause of the lease's end

	// Of an acquisition.
	Reentrant bool
	Ahead     int
	Waited    time.Duration

	Held time.Duration // of a lease
}

// StateChange is a change of the connection's state.
type StateChange struct {
	From, To   connstate.State
	Server     string
	LostServer string
	NewSession bool
	Err        error
}

// Acquisition is one acquisition as seen by the hooks, from AcquireStart to LeaseEnd. Every method may be
// called on nil, an acquisition without hooks, and then does nothing.
type Acquisition struct {
	hooks   []*Hooks
	call    func(fn func())   // runs a hook, and waits for the end
	ctxs    []context.Context // for each of the hooks, the context returned by AcquireStart
	subject Subject
	beganAt time.Time
	ahead   int

	// Set before AcquireEnd is called, and not changed afterwards.
	token     int64
	permits   int
	grantedAt time.Time

	mu   sync.Mutex // protects the fields below
	open int        // leases not ended yet
	loss error      // why the first of the lost leases ended
}

// Begin calls AcquireStart of all hooks. call runs a function of the user, and waits for the end. Without hooks, Begin returns
// nil.
func Begin(ctx context.Context, hooks []*Hooks, subject Subject, call func(fn func())) *Acquisition {
	if len(hooks) == 0 {
		return nil
	}
	a := &Acquisition{hooks: hooks, call: call, subject: subject, beganAt: time.Now(), ctxs: make([]context.Context, len(hooks))}
	for i, h := range hooks {
		a.ctxs[i] = ctx //nolint:fatcontext // each has its own
		if h.AcquireStart == nil {
			continue
		}
		call(func() {
			if own := h.AcquireStart(ctx, subject); own != nil {
				a.ctxs[i] = own //nolint:fatcontext // as above
			}
		})
	}
	return a
}

// SetAhead records how many contenders were ahead at the first listing of the queue.
func (a *Acquisition) SetAhead(n int) {
	if a != nil {
		a.ahead = n
	}
}

// Fail ends a failed acquisition.
func (a *Acquisition) Fail(err error) {
	if a != nil {
		a.callAcquireEnd(End{Err: err})
	}
}

// Succeed ends an acquisition of a number of leases. Afterwards the caller reports the end of each lease to EndLease.
func (a *Acquisition) Succeed(isReentry bool, token int64, leases int) {
	if a == nil {
		return
	}
	a.token, a.grantedAt, a.open = token, time.Now(), leases
	if leases > 1 {
		a.permits = leases
	}
	a.callAcquireEnd(End{Reentrant: isReentry, Token: a.token, Permits: a.permits})
}

// EndLease records the end of a lease, by a loss unless cause is nil or ErrReleased. It calls nothing. If no lease is left, isLast is
// true. Then the caller has to call CallLeaseEnd.
func (a *Acquisition) EndLease(cause error) (isLast bool) {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.loss == nil && !errors.Is(cause, zkutil.ErrReleased) {
		a.loss = cause
	}
	a.open--
	return a.open == 0
}

// callAcquireEnd calls AcquireEnd of all hooks.
//
//nolint:contextcheck,nolintlint // seen at the callers: the hooks get the contexts of their own AcquireStart
func (a *Acquisition) callAcquireEnd(e End) {
	e.Subject, e.Ahead, e.Waited = a.subject, a.ahead, time.Since(a.beganAt)
	for i, h := range a.hooks {
		if h.AcquireEnd != nil {
			a.call(func() { h.AcquireEnd(a.ctxs[i], e) })
		}
	}
}

// CallLeaseEnd calls LeaseEnd of all hooks.
//
//nolint:contextcheck,nolintlint // as above
func (a *Acquisition) CallLeaseEnd() {
	a.mu.Lock()
	e := End{Subject: a.subject, Held: time.Since(a.grantedAt), Token: a.token, Permits: a.permits, Err: a.loss}
	a.mu.Unlock()
	for i, h := range a.hooks {
		if h.LeaseEnd != nil {
			a.call(func() { h.LeaseEnd(a.ctxs[i], e) })
		}
	}
}
