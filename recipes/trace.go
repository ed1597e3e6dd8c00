package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Trace has functions that are called when something happens in a client and its recipes: for metrics and
// spans. Give it to [WithTrace]. Each function may be nil. Later versions may add functions here, and fields to
// the types of their arguments, so write these types with the names of the fields.
//
// Each recipe calls AcquireStart and AcquireEnd once for each acquisition, re-entries and failures included.
// For each AcquireEnd without an error there is one LeaseEnd, which comes after it. AcquireN of a semaphore is one
// acquisition: its LeaseEnd comes when the last of the permits has ended. A multilock has no calls of its own,
// but those of its parts. Of a latch or a selector, an acquisition begins when it joins the election, and a lease
// is a term. An acquisition of a latch or a selector that goes on in another session is one acquisition.
//
// The functions run under no lock, and may be called concurrently. AcquireStart and AcquireEnd are called before
// Acquire goes on or returns, and LeaseEnd of a lease that is released before Release returns, so they should
// be quick. LeaseEnd of a lease that is lost, and StateChange, are called in the background, one at a time and in
// order; Client.Close waits for them. Each call has a goroutine of its own. A panic in one is recovered and
// logged at Error, and changes nothing else. A function may call the client and its recipes; Close inside a
// function does not wait.
type Trace struct {
	// AcquireStart is called when an acquisition begins. The context is that of the caller; for elections it
	// is that of Run, or one without values. AcquireEnd and LeaseEnd get the context that AcquireStart
	// returns. The acquisition itself does not use it. If AcquireStart is nil, panics or returns nil, they get
	// the caller's.
	AcquireStart func(ctx context.Context, e AcquireStart) context.Context
	// AcquireEnd is called when the acquisition has succeeded or failed.
	AcquireEnd func(ctx context.Context, e AcquireEnd)
	// LeaseEnd is called when a lease has ended: right after its own context.
	LeaseEnd func(ctx context.Context, e LeaseEnd)
	// StateChange is called for each change of the connection's state, as Client.Subscribe tells of it. No
	// change is left out.
	StateChange func(e StateChange)
}

// AcquireStart is the argument of [Trace].AcquireStart.
type AcquireStart struct {
	// Recipe is "mutex", "read lock", "write lock", "semaphore", "semaphore mutex", "latch" or "selector".
	Recipe string
	// Name is that of the recipe's WithName, and empty without that option.
	Name string
	// Path is the path that the recipe was made with, without the namespace.
	Path string
	// Try is true for TryAcquire.
	Try bool
}

// AcquireEnd is the argument of [Trace].AcquireEnd.
type AcquireEnd struct {
	Recipe, Name, Path string // as in AcquireStart
	Try                bool
	// Reentrant is true if the caller held the lock already.
	Reentrant bool
	// Ahead is how many contenders were ahead in the queue at the first look at it, 0 for none: also readers
	// ahead of a reader, which does not wait for them. Of a semaphore these are the requests ahead, or else the
	// permits that had to be given back first. It is 0 if the queue was not read.
	Ahead int
	// Waited is the time since AcquireStart.
	Waited time.Duration
	// Token is the fencing token of the lease, that of the first permit for several, and 0 after an error.
	Token int64
	// Err is the error that the caller gets, and nil after a success. Of an election that was left it
	// is the reason.
	Err error
}

// LeaseEnd is the argument of [Trace].LeaseEnd.
type LeaseEnd struct {
	Recipe, Name, Path string // as in AcquireStart
	// Held is the time since AcquireEnd.
	Held time.Duration
	// Token is that of AcquireEnd.
	Token int64
	// Cause is nil for a lease that was released, and for a term that was ended in order. Otherwise it is
	// the cause of the lease's context: ErrSessionLost, ErrSuspended, ErrNodeDeleted or ErrClosed.
	Cause error
}

// StateChange is the argument of [Trace].StateChange.
type StateChange struct {
	// From is the state before: Connected, Suspended or Lost. Before the first connection it is Suspended.
	From ConnectionState
	// To is the state now, or Reconnected, after which the state is Connected.
	To ConnectionState
	// Server is the address of the server: with Suspended and Lost that of the one whose connection was
	// lost last, with Connected and Reconnected that of the new one. It is empty if there is none, and with
	// Closed.
	Server string
	// NewSession is true with Connected, and with Reconnected if the servers have ended the session before.
	NewSession bool
	// Err says why the connection or the session was lost. It is nil with other states.
	Err error
}

// WithTrace adds functions that are called when something happens. It may be given several times: then the
// functions of each are called, in this order.
func WithTrace(trace *Trace) Option {
	return func(cfg *config) error {
		if trace == nil {
			return errors.New("trace: nil")
		}
		cfg.Traces = append(cfg.Traces, trace.forSession())
		return nil
	}
}

// forSession returns the same functions with the types of package session.
func (t *Trace) forSession() *session.Trace {
	own := *t
	s := &session.Trace{}
	if own.AcquireStart != nil {
		s.AcquireStart = func(ctx context.Context, e session.AcquireStart) context.Context {
			return own.AcquireStart(ctx, AcquireStart(e))
		}
	}
	if own.AcquireEnd != nil {
		s.AcquireEnd = func(ctx context.Context, e session.AcquireEnd) { own.AcquireEnd(ctx, AcquireEnd(e)) }
	}
	if own.LeaseEnd != nil {
		s.LeaseEnd = func(ctx context.Context, e session.LeaseEnd) { own.LeaseEnd(ctx, LeaseEnd(e)) }
	}
	if own.StateChange != nil {
		s.StateChange = func(e session.StateChange) {
			own.StateChange(StateChange{
				From: ConnectionState(e.From), To: ConnectionState(e.To), Server: e.Server, NewSession: e.NewSession, Err: e.Err,
			})
		}
	}
	return s
}
