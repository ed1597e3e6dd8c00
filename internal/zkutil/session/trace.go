package session

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Trace has functions of the user that follow acquisitions, leases and the connection. Each may be nil.
// They run under no lock, each in a goroutine of its own, so that neither a panic nor runtime.Goexit in one
// has an effect.
type Trace struct {
	AcquireStart func(ctx context.Context, e AcquireStart) context.Context
	AcquireEnd   func(ctx context.Context, e AcquireEnd)
	LeaseEnd     func(ctx context.Context, e LeaseEnd)
	StateChange  func(e StateChange)
}

// AcquireStart is the begin of an acquisition. Package recipes has the public form of this type and of those
// below, with the same fields.
type AcquireStart struct {
	Recipe, Name, Path string
	Try                bool
}

// AcquireEnd is the end of an acquisition.
type AcquireEnd struct {
	Recipe, Name, Path string
	Try, Reentrant     bool
	Ahead              int
	Waited             time.Duration
	Token              int64
	Err                error
}

// LeaseEnd is the end of what an acquisition has got.
type LeaseEnd struct {
	Recipe, Name, Path string
	Held               time.Duration
	Token              int64
	Cause              error
}

// StateChange is a change of the connection's state.
type StateChange struct {
	From, To   State
	Server     string
	NewSession bool
	Err        error
}

// Acquisition is one acquisition as the traces see it, from AcquireStart to LeaseEnd. Every method may be
// called on nil, which is an acquisition without traces, and does nothing then.
type Acquisition struct {
	s       *Session
	scope   zkutil.Scope      // of the candidate that acquires a term; 0: there is none
	ctxs    []context.Context // for each trace the one that its AcquireStart has returned
	start   AcquireStart
	beganAt time.Time
	ahead   int

	// Set before AcquireEnd is called, and not changed afterwards.
	token     int64
	grantedAt time.Time

	// Guarded by Session.mu.
	open int   // leases that have not ended
	loss error // why the first of the leases that were lost has ended
}

// BeginAcquisition calls AcquireStart of all traces. It returns nil if there are none.
func (s *Session) BeginAcquisition(ctx context.Context, start AcquireStart, scope zkutil.Scope) *Acquisition {
	if len(s.cfg.Traces) == 0 {
		return nil
	}
	a := &Acquisition{s: s, scope: scope, start: start, beganAt: time.Now(), ctxs: make([]context.Context, len(s.cfg.Traces))}
	for i, t := range s.cfg.Traces {
		a.ctxs[i] = ctx //nolint:fatcontext // each trace has its own
		if t.AcquireStart == nil {
			continue
		}
		a.run(func() {
			if own := t.AcquireStart(ctx, start); own != nil {
				a.ctxs[i] = own //nolint:fatcontext // as above
			}
		})
	}
	return a
}

// SetAhead records how many contenders were ahead at the first look at the queue.
func (a *Acquisition) SetAhead(n int) {
	if a != nil {
		a.ahead = n
	}
}

// Fail ends an acquisition that has got nothing.
func (a *Acquisition) Fail(err error) {
	if a != nil {
		a.callAcquireEnd(AcquireEnd{Err: err})
	}
}

// Succeed ends an acquisition that has got entries. LeaseEnd follows when the last of them has ended. It can't
// come before AcquireEnd, because the entries are bound only afterwards.
func (a *Acquisition) Succeed(isReentry bool, entries ...*Entry) {
	if a == nil {
		return
	}
	a.token, a.grantedAt = entries[0].Token(), time.Now()
	a.callAcquireEnd(AcquireEnd{Reentrant: isReentry, Token: a.token})
	a.s.mu.Lock()
	for _, e := range entries {
		switch cause := e.hold.cause; {
		case e.hasLeft:
		case cause != nil:
			a.noteLossLocked(cause)
		default:
			e.acquisition = a
			a.open++
		}
	}
	isOver := a.open == 0
	a.s.mu.Unlock()
	if isOver {
		a.callLeaseEnd()
	}
}

func (a *Acquisition) noteLossLocked(cause error) {
	if a.loss == nil {
		a.loss = cause
	}
}

// endTracedLocked notes that an entry has ended, by a loss if cause is not nil. It returns its acquisition if no other
// entry of that is left: then the caller has to see to callLeaseEnd, not under the lock.
func (e *Entry) endTracedLocked(cause error) *Acquisition {
	a := e.acquisition
	if a == nil {
		return nil
	}
	e.acquisition = nil
	if cause != nil && !errors.Is(cause, zkutil.ErrReleased) {
		a.noteLossLocked(cause)
	}
	a.open--
	if a.open > 0 {
		return nil
	}
	return a
}

// callAcquireEnd calls AcquireEnd of all traces.
//
//nolint:contextcheck,nolintlint // seen at the callers: the hooks get the contexts of their own AcquireStart
func (a *Acquisition) callAcquireEnd(e AcquireEnd) {
	e.Recipe, e.Name, e.Path, e.Try = a.start.Recipe, a.start.Name, a.start.Path, a.start.Try
	e.Ahead, e.Waited = a.ahead, time.Since(a.beganAt)
	for i, t := range a.s.cfg.Traces {
		if t.AcquireEnd != nil {
			a.run(func() { t.AcquireEnd(a.ctxs[i], e) })
		}
	}
}

// callLeaseEnd calls LeaseEnd of all traces.
//
//nolint:contextcheck,nolintlint // as above
func (a *Acquisition) callLeaseEnd() {
	e := LeaseEnd{
		Recipe: a.start.Recipe, Name: a.start.Name, Path: a.start.Path,
		Held: time.Since(a.grantedAt), Token: a.token, Cause: a.loss, // nothing writes loss any more
	}
	for i, t := range a.s.cfg.Traces {
		if t.LeaseEnd != nil {
			a.run(func() { t.LeaseEnd(a.ctxs[i], e) })
		}
	}
}

// run runs a function of a trace in a goroutine of its own, and waits for it.
func (a *Acquisition) run(fn func()) {
	order := Callbacks{s: a.s, scope: a.scope} // for its handling of panics
	done := make(chan struct{})
	go func() { // ends with the user's function; joined below
		defer close(done)
		order.runContained(fn)
	}()
	<-done
}

// postStateChangeLocked has StateChange of all traces called, in the order of the changes.
func (s *Session) postStateChangeLocked(e StateChange) {
	for _, t := range s.cfg.Traces {
		if t.StateChange != nil {
			s.traceCalls.Post(func() { t.StateChange(e) })
		}
	}
}
