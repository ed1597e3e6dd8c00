package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
)

// Trace has the functions to call on events in a client and its recipes: for metrics and spans. Pass a Trace to
// [WithTrace]. Each function may be nil. Later versions may add functions to Trace, and fields to the argument
// types, so use field names in composite literals.
//
// Each recipe calls AcquireStart and AcquireEnd once for each acquisition, re-entries and failures included. Each
// AcquireEnd without an error is followed by one LeaseEnd. AcquireN of a semaphore is one acquisition, with one
// LeaseEnd at the end of its last permit. A multilock has no calls of its own, but the locks in the multilock do. For a
// latch or a selector, an acquisition begins on joining the election, and a lease is a term. An acquisition of a latch
// or a selector that continues in another session is still the same acquisition.
//
// The functions run under no lock, and may be called concurrently. AcquireStart and AcquireEnd are called
// before Acquire continues or returns, and LeaseEnd of a released lease before Release returns, so the
// functions should be quick. LeaseEnd of a lost lease, and StateChange, are called in the background, one at a
// time and in order; Client.Close waits for these calls. While such a call does not return, up to 1,024 further
// calls wait. Any beyond are left out, and a warning in the log has the count. Each call has a goroutine of its
// own. A panic is recovered and logged at Error, and changes nothing else. A function may call the client and
// its recipes; Close inside a function does not wait.
type Trace struct {
	// AcquireStart is called when an acquisition begins. The context is the caller's; for elections, Run's
	// context, or a context without values. AcquireEnd and LeaseEnd get the context returned by AcquireStart.
	// The acquisition itself does not use the returned context. If AcquireStart is nil, panics or returns nil,
	// AcquireEnd and LeaseEnd get the caller's context.
	AcquireStart func(ctx context.Context, e AcquireStart) context.Context
	// AcquireEnd is called when the acquisition succeeds or fails.
	AcquireEnd func(ctx context.Context, e AcquireEnd)
	// LeaseEnd is called right after the end of a lease's context.
	LeaseEnd func(ctx context.Context, e LeaseEnd)
	// StateChange is called for each change of the connection's state, as reported by Client.Subscribe. Unlike with
	// Subscribe, no change is left out, unless a function does not return (see above).
	StateChange func(e StateChange)
}

// AcquireStart is the argument of [Trace].AcquireStart.
type AcquireStart struct {
	// Recipe is one of these words, which the log, metrics and errors use too: "mutex", "read-lock", "write-lock",
	// "semaphore", "semaphore-mutex", "latch", "selector" or "once". The list is closed. Only a new recipe adds a word.
	// The kinds of package inspect are the same words, as far as znodes show the recipe.
	Recipe string
	// Name is the name set by the recipe's WithName, and empty without WithName.
	Name string
	// Path is the path with which the recipe was made, without the namespace.
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
	// Ahead is the number of contenders ahead when the queue was first read: including readers ahead of a
	// reader, although a reader does not wait for readers. For a semaphore, Ahead counts the requests ahead,
	// or else the permits that had to be given back first. Ahead is 0 if the queue was not read.
	Ahead int
	// Waited is the time since AcquireStart.
	Waited time.Duration
	// Token is the fencing token of the lease, for several permits the token of the first, and 0 after an
	// error.
	Token int64
	// Permits is the number of permits that an AcquireN of two or more got, and otherwise 0.
	Permits int
	// Err is the error returned to the caller, and nil after a success. When an election was left, Err is the
	// reason.
	Err error
}

// LeaseEnd is the argument of [Trace].LeaseEnd.
type LeaseEnd struct {
	Recipe, Name, Path string // as in AcquireStart
	// Held is the time since AcquireEnd.
	Held time.Duration
	// Token is the token in AcquireEnd.
	Token int64
	// Permits is the number in AcquireEnd.
	Permits int
	// Cause is nil for a released lease, and for a term that ended in order. Cause is ErrFailed for a term
	// that ended because the leader's function or a listener failed. Otherwise Cause is the cause of the
	// lease's context: ErrSessionLost, ErrSuspended, ErrNodeDeleted, ErrClosed or ErrMaxHold.
	Cause error
}

// StateChange is the argument of [Trace].StateChange.
type StateChange struct {
	// From is the state before: Connected, Suspended or Lost. Before the first connection, From is Suspended.
	From ConnectionState
	// To is the state now, or Reconnected, after which the state is Connected.
	To ConnectionState
	// Server is the server, as in Health: with Suspended and Lost the server whose connection was lost last,
	// with Connected and Reconnected the server of the new connection. Server is empty without a server, and
	// with Closed.
	Server string
	// LostServer is, with Reconnected, the server whose connection was lost before, and otherwise empty.
	LostServer string
	// NewSession is true with Connected, and with Reconnected if the servers ended the session before.
	NewSession bool
	// Err is the reason for the loss of the connection or the session, and nil with other states.
	Err error
}

// WithTrace adds functions to call on events. WithTrace may be given several times: then the functions of each
// Trace are called, in the order given.
func WithTrace(t *Trace) Option {
	return func(cfg *config) error {
		if t == nil {
			return errors.New("trace: nil")
		}
		cfg.Traces = append(cfg.Traces, t.hooks())
		return nil
	}
}

// hooks returns the same functions with the types of the engine.
func (t *Trace) hooks() *trace.Hooks {
	own := *t
	h := &trace.Hooks{}
	if own.AcquireStart != nil {
		h.AcquireStart = func(ctx context.Context, s trace.Subject) context.Context {
			return own.AcquireStart(ctx, AcquireStart(s))
		}
	}
	if own.AcquireEnd != nil {
		h.AcquireEnd = func(ctx context.Context, e trace.End) {
			own.AcquireEnd(ctx, AcquireEnd{
				Recipe: e.Recipe, Name: e.Name, Path: e.Path, Try: e.Try, Reentrant: e.Reentrant, Ahead: e.Ahead, Waited: e.Waited,
				Token: e.Token, Permits: e.Permits, Err: e.Err,
			})
		}
	}
	if own.LeaseEnd != nil {
		h.LeaseEnd = func(ctx context.Context, e trace.End) {
			own.LeaseEnd(ctx, LeaseEnd{
				Recipe: e.Recipe, Name: e.Name, Path: e.Path, Held: e.Held, Token: e.Token, Permits: e.Permits, Cause: e.Err,
			})
		}
	}
	if own.StateChange != nil {
		h.StateChange = func(e trace.StateChange) {
			own.StateChange(StateChange{
				From: ConnectionState(e.From), To: ConnectionState(e.To), Server: e.Server, LostServer: e.LostServer, NewSession: e.NewSession, Err: e.Err,
			})
		}
	}
	return h
}
