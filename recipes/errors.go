package recipes

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// The errors of all recipes, matched with errors.Is. Those that end a lease are the
// cause of its context too.
var (
	// ErrNotAcquired is returned when only a try was asked for and another holds the lock.
	ErrNotAcquired = zkutil.ErrNotAcquired
	// ErrNotHeld is returned by the second Release of one lease.
	ErrNotHeld = zkutil.ErrNotHeld
	// ErrSessionLost ends a lease whose session has expired, or can't be proven alive
	// any more.
	ErrSessionLost = zkutil.ErrSessionLost
	// ErrSuspended ends a lease at a disconnect, under StandardErrorPolicy or on an
	// adopted connection whose session timeout is unknown.
	ErrSuspended = zkutil.ErrSuspended
	// ErrReleased ends a lease that its owner gave back.
	ErrReleased = zkutil.ErrReleased
	// ErrNodeDeleted ends a lease whose znode somebody else has deleted.
	ErrNodeDeleted = zkutil.ErrNodeDeleted
	// ErrClosed is returned by every call, and ends every lease, once the client is closed;
	// and by the calls of a latch or selector that is closed. The text of a latch's or selector's
	// error says what is closed: it, or the client.
	ErrClosed = zkutil.ErrClosed
	// ErrNotStarted is returned by calls of a latch that need Start.
	ErrNotStarted = zkutil.ErrNotStarted
	// ErrAlreadyStarted is returned by the second Start or Run.
	ErrAlreadyStarted = zkutil.ErrAlreadyStarted
	// ErrStepDownGrace is returned by Close and Run when a leader's function or listener has
	// not returned in time: it works on, and its znode keeps successors out until it
	// returns. A program that can't make it return has to exit, which ends both.
	ErrStepDownGrace = zkutil.ErrStepDownGrace
	// ErrNodeNotDeleted is returned by Release and Close when the server has not confirmed
	// within the operation timeout that the znode is gone. The deletion goes on in the
	// background: until it is done, or the session is over, nobody else holds or leads.
	ErrNodeNotDeleted = zkutil.ErrNodeNotDeleted
	// ErrSequenceExhausted is returned when the server has run out of sequence numbers
	// for a path: after 2147483647 the order of contenders means nothing. The numbers
	// start again when the parent znode is removed, which the server does by itself
	// while nobody uses it.
	ErrSequenceExhausted = zkutil.ErrSequenceExhausted
	// ErrInvalidArgument is returned when an argument is invalid: a nil client, an option with a
	// wrong value, an id that is too long, a path that ErrInvalidPath is returned for. Nothing
	// was sent to a server; the same call will always fail.
	ErrInvalidArgument = zkutil.ErrInvalidArgument
	// ErrInvalidPath is returned for a path that the server or this library refuses.
	ErrInvalidPath = zkutil.ErrInvalidPath
)

// WaitError is the cause in the *OpError of an Acquire, TryAcquire or Do whose context ended before
// the lock was acquired, a re-entry included. It tells "never got the lock" from a deadline inside
// the function that Do has called, for which errors.Is finds context.DeadlineExceeded as well:
//
//	err := m.Do(ctx, deduct)
//	if wait, ok := errors.AsType[*recipes.WaitError](err); ok {
//		return fmt.Errorf("busy, position %d: %w", wait.Position, err) // deduct was not called
//	}
//
// If the function acquires locks itself, it may return a WaitError of its own. The Path of the
// OpError tells whose wait that was; only a function that re-enters the same lock has to note
// that it was called.
type WaitError struct {
	// Position is the place in the queue, from 1, which would hold, when the queue was last
	// read: others may have left since. 0 means that it was never read.
	Position int
	// Holder is who was first then. Its ID is known only to the waiter right behind it, for
	// nothing is asked after the end of the context.
	Holder Participant
	// Waited is the time since Acquire was called; 0 at a re-entry, which never waits.
	Waited time.Duration
	// Err matches the error of the context and its cause. It also tells of the last failure
	// if there was one, such as no connection.
	Err error
}

// Error returns "not acquired after 5s in position 2, behind web-3 at /locks/a/…: …".
func (e *WaitError) Error() string {
	text := "not acquired after " + e.Waited.String()
	if e.Position > 0 {
		text += " in position " + strconv.Itoa(e.Position)
	}
	if e.Position > 1 {
		text += ", behind "
		if e.Holder.ID != "" {
			text += strconv.Quote(e.Holder.ID) + " at "
		}
		text += e.Holder.Path
	}
	return text + ": " + e.Err.Error()
}

// Unwrap returns the error of the context.
func (e *WaitError) Unwrap() error { return e.Err }

// WaitErrorOf is for the recipes of this module: err, with the engine's WaitError replaced
// by the public one.
func WaitErrorOf(err error) error {
	wait, ok := errors.AsType[*zkutil.WaitError](err)
	if !ok {
		return err
	}
	return &WaitError{
		Position: wait.Position,
		Holder:   ParticipantOf(wait.Holder),
		Waited:   wait.Waited,
		Err:      wait.Err,
	}
}

// PanicError is what a recipe reports when a function of the user has panicked.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of the goroutine, as debug.Stack formats it
}

// Error returns "panic: …", without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// AttributesOf is for the recipes of this module: what a record of the log says about an error
// of theirs, the stack of a panic in an attribute of its own.
func AttributesOf(path string, err error) []any {
	attributes := []any{"path", path, "err", err}
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		attributes = append(attributes, "stack", string(panicked.Stack))
	}
	return attributes
}

// OpError is the type of the errors that recipes return: what was attempted, and
// on what path. It unwraps to the cause.
type OpError struct {
	Op   string // such as "mutex: acquire"
	Path string
	Err  error
}

// Error returns "mutex: acquire /locks/a: …". A path that would not print as it is
// is quoted.
func (e *OpError) Error() string {
	switch path := e.Path; {
	case path == "":
		return e.Op + ": " + e.Err.Error()
	case strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) }):
		return e.Op + " " + strconv.Quote(path) + ": " + e.Err.Error()
	default:
		return e.Op + " " + path + ": " + e.Err.Error()
	}
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }
