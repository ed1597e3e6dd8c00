package recipes

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// The errors of all recipes, for errors.Is. An error that ends a lease is also the cause of the
// lease's context.
var (
	// ErrNotAcquired is returned by TryAcquire when another contender holds the lock or is ahead.
	ErrNotAcquired = zkutil.ErrNotAcquired
	// ErrNotHeld is returned by the second Release of one lease.
	ErrNotHeld = zkutil.ErrNotHeld
	// ErrSessionLost ends a lease whose session has expired, or can't be proven alive
	// any more.
	ErrSessionLost = zkutil.ErrSessionLost
	// ErrSuspended ends a lease at a disconnect, under StandardErrorPolicy or on an
	// adopted connection whose session timeout is unknown.
	ErrSuspended = zkutil.ErrSuspended
	// ErrReleased ends a lease that its owner has released.
	ErrReleased = zkutil.ErrReleased
	// ErrNodeDeleted ends a lease whose znode was deleted by another client.
	ErrNodeDeleted = zkutil.ErrNodeDeleted
	// ErrClosed is returned by every call, and ends every lease, after the client was closed. The
	// calls of a closed latch or selector return it too; the text of their errors says which was
	// closed, the client or the recipe.
	ErrClosed = zkutil.ErrClosed
	// ErrNotStarted is returned by calls of a latch that need Start.
	ErrNotStarted = zkutil.ErrNotStarted
	// ErrAlreadyStarted is returned by the second Start or Run.
	ErrAlreadyStarted = zkutil.ErrAlreadyStarted
	// ErrStepDownGrace is returned by Close and Run when a leader's function or listener has not
	// returned within the step-down grace. Until it returns, its znode keeps successors from
	// leading. A program that can't make it return has to exit, which ends both.
	ErrStepDownGrace = zkutil.ErrStepDownGrace
	// ErrNodeNotDeleted is returned by Release and Close when the server has not confirmed within
	// the operation timeout that the znode is gone. The deletion is repeated in the background.
	// Until it is done, or the session is over, no other contender can hold the lock or lead.
	ErrNodeNotDeleted = zkutil.ErrNodeNotDeleted
	// ErrSequenceExhausted is returned when the server has run out of sequence numbers for a path:
	// after 2147483647 the order of contenders means nothing. The numbers start again when the
	// parent znode has been deleted. The server deletes it by itself while no client uses it.
	ErrSequenceExhausted = zkutil.ErrSequenceExhausted
	// ErrInvalidArgument is returned when an argument is invalid: a nil client, an option with an
	// invalid value, an id that is too long, an invalid path. Nothing was sent to a server; the same
	// call will always fail.
	ErrInvalidArgument = zkutil.ErrInvalidArgument
	// ErrOtherLayout is returned when the path has contenders of another kind of lock, such as those of
	// a mutex on the path of a read-write lock. The two would not exclude each other. The text names
	// one of these contenders.
	ErrOtherLayout = zkutil.ErrOtherLayout
	// ErrSessionFull is returned when the paths of the client's ephemeral znodes would exceed the bytes
	// of WithMaxSessionBytes, and the client has no contender on the path yet. Nothing was sent to a
	// server. Release something, or use another client for further paths. A latch or a selector
	// reports the error to its error handler, and tries again after a pause that grows. A path on which
	// the client has a contender already is never refused: there the next contender waits.
	ErrSessionFull = zkutil.ErrSessionFull
	// ErrInvalidPath is returned for a path that the server or this library does not accept.
	ErrInvalidPath = zkutil.ErrInvalidPath
)

// WaitError is in the *OpError of an Acquire, TryAcquire or Do whose context ended before the lock
// was acquired or re-entered. With it a program can tell a lock that was never acquired from a
// deadline inside the function that Do has called: errors.Is finds context.DeadlineExceeded in both.
//
//	err := m.Do(ctx, deduct)
//	if wait, ok := errors.AsType[*recipes.WaitError](err); ok {
//		return fmt.Errorf("busy, position %d: %w", wait.Position, err) // deduct was not called
//	}
//
// If the function acquires other locks, it may return a WaitError of those. The Path of the OpError
// names the lock. A function that re-enters the same lock has to record that it was called.
type WaitError struct {
	// Position is the position in the queue when that was last read. 1 is the position of the
	// holder. Contenders ahead may have left since. 0: the queue was never read.
	Position int
	// Holder is the contender that was first then, if that was another one. Its ID is known only to the
	// waiter directly behind it, because nothing is read after the end of the context. For the next one to
	// get permits of a semaphore, Holder has the first permit; its ID is known after a wait of a second.
	Holder Participant
	// Waited is the time since Acquire was called; 0 at a re-entry, which never waits.
	Waited time.Duration
	// Err matches the error of the context and its cause. It also wraps the last failure if there
	// was one, such as no connection.
	Err error
}

// Error returns "not acquired after 5s in position 2, behind web-3 at /locks/a/…: …".
func (e *WaitError) Error() string {
	text := "not acquired after " + e.Waited.String()
	if e.Position > 0 {
		text += " in position " + strconv.Itoa(e.Position)
	}
	if e.Holder.Path != "" {
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

// PanicError is reported by a recipe when a function of the user has panicked.
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

// OpError is the type of the errors that recipes return. It has the operation and the path, and
// unwraps to the cause.
type OpError struct {
	Op   string // such as "mutex: acquire"
	Path string
	Err  error
}

// Error returns "mutex: acquire /locks/a: …". A path with unprintable characters is quoted.
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
