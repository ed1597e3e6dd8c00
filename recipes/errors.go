package recipes

import (
	"fmt"
	"strconv"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// The errors of all recipes, for errors.Is. An error that ends a lease is also the cause of the
// lease's context.
var (
	// ErrNotAcquired is matched by every [WaitError]: another contender held the lock or was ahead, or the context
	// ended before the lock was acquired.
	ErrNotAcquired = zkutil.ErrNotAcquired
	// ErrNotHeld is returned by the second Release of one lease.
	ErrNotHeld = zkutil.ErrNotHeld
	// ErrSessionLost ends a lease whose session is expired, or can't be proven alive any more.
	ErrSessionLost = zkutil.ErrSessionLost
	// ErrSuspended ends a lease at a disconnect, under StandardErrorPolicy.
	ErrSuspended = zkutil.ErrSuspended
	// ErrReleased ends a lease released by its owner.
	ErrReleased = zkutil.ErrReleased
	// ErrNodeDeleted ends a lease whose znode was deleted by another client.
	ErrNodeDeleted = zkutil.ErrNodeDeleted
	// ErrClosed is returned by every call, and ends every lease, after the client was closed. The calls of a
	// closed latch or selector return ErrClosed too; the text of the error says which was closed, the client
	// or the recipe.
	ErrClosed = zkutil.ErrClosed
	// ErrNotStarted is returned by calls of a latch that need Start, and by Await of a group that was not joined.
	ErrNotStarted = zkutil.ErrNotStarted
	// ErrAlreadyStarted is returned by the second Start or Run.
	ErrAlreadyStarted = zkutil.ErrAlreadyStarted
	// ErrStepDownGrace is returned by Close, Shutdown and Run when a leader's function or listener, or the function
	// of a Do, does not return within the step-down grace, or before the end of Shutdown's context. Until it returns,
	// its znode keeps others from leading, or from the lock. A program that can't make the function return has to
	// exit, which ends both.
	ErrStepDownGrace = zkutil.ErrStepDownGrace
	// ErrNodeNotDeleted is returned by Release, Close and Shutdown when the server does not confirm the deletion of
	// the znode within the operation timeout. The deletion is retried in the background. Until the znode is deleted,
	// or the session is over, no other contender can hold the lock or lead.
	ErrNodeNotDeleted = zkutil.ErrNodeNotDeleted
	// ErrSequenceExhausted is returned when the server runs out of sequence numbers for a path, because the order of
	// contenders is meaningless after 2147483647. The numbers restart after the deletion of the parent znode. The
	// server itself deletes a parent that no client uses.
	ErrSequenceExhausted = zkutil.ErrSequenceExhausted
	// ErrInvalidArgument is returned when an argument is invalid, such as a nil client, an option with an invalid
	// value, an id that is too long or an invalid path. It is also returned by the methods of the zero value of a type
	// that has a New. Those that return no error panic with it. Nothing was sent to a server; the same call will always
	// fail.
	ErrInvalidArgument = zkutil.ErrInvalidArgument
	// ErrOtherLayout is returned when the path has contenders of another kind of lock, such as those of a
	// mutex on the path of a read-write lock. The two would not exclude each other. The text names one of the
	// other contenders.
	ErrOtherLayout = zkutil.ErrOtherLayout
	// ErrLoginRefused is returned when a login over SASL is refused, by the server or by the mechanism, for a
	// persistent reason, such as a wrong user or password, a server without SASL, and what the errors of
	// contrib/saslkrb5 name. A request of a client without a login fails with ErrLoginRefused if the servers demand a
	// login.
	ErrLoginRefused = zkutil.ErrLoginRefused
	// ErrCertificateExpired is returned by Connect when TLS fails because a certificate is not valid any more. The text
	// says whether it is the server's, or the client's where the server refuses the client.
	ErrCertificateExpired = zkutil.ErrCertificateExpired
	// ErrSessionFull is returned when the paths of the client's ephemeral znodes would exceed the bytes of
	// WithMaxSessionBytes, even after the client's other contenders on the path leave, mostly because there are none.
	// Nothing was sent to a server. Release a lease, or use another client for further paths. A latch or a selector
	// reports the error to its error handler, and tries again after a growing pause. On a path on which the client
	// has contenders with as many bytes, the next contender is not refused, but waits. A semaphore's request for n
	// permits needs the bytes of n+1 znodes.
	ErrSessionFull = zkutil.ErrSessionFull
	// ErrFailed is the Cause of LeaseEnd, and the cause in the log, of a term whose function or listener failed or
	// panicked. The context of the term ends with ErrReleased.
	ErrFailed = zkutil.ErrFailed
	// ErrWorkGoesOn is reported, a second after the end of a term and then once a minute, while the leader's function
	// or a listener is still running. The error handler, the log, and Err of a latch report it. No successor can lead
	// until the work returns or the znode of the term is deleted.
	ErrWorkGoesOn = zkutil.ErrWorkGoesOn
	// ErrMaxHold ends a lease that was held for as long as WithMaxHold of its recipe allows. The znode stays until the
	// work returns. Release deletes the znode, and returns nil once it is deleted. The error of a Do whose function
	// was still running matches ErrMaxHold.
	ErrMaxHold = zkutil.ErrMaxHold
	// ErrNoCandidate is returned by TransferTo when no candidate, or more than one, has the id.
	ErrNoCandidate = zkutil.ErrNoCandidate
	// ErrNotSteered is returned by TransferTo when a candidate ahead of the target has no priority, or the target itself in
	// an election of latches (see WithPriority of latch and selector). A candidate without a priority, which may be
	// Curator's, can't be asked to let others lead.
	ErrNotSteered = zkutil.ErrNotSteered
	// ErrNotEphemeral is matched by the WaitError of a wait behind a znode that is not ephemeral, and reported by a
	// latch or a selector that waits behind such a znode. The znode has the name of a contender, but belongs to no
	// session. It blocks the lock or the election until a client deletes it. The text has the path of the znode.
	ErrNotEphemeral = zkutil.ErrNotEphemeral
	// ErrUnsupported is matched by the error of a call for which the servers lack an operation, which the text names:
	// they answered that they do not know the operation, or they never answered such a request and, for a session
	// timeout or more, ended each connection at it that answered others: eight or more. For five seconds, calls that
	// need the operation fail without a request. Elections report the error and continue. No server that this library
	// supports lacks such an operation, but a proxy may.
	ErrUnsupported = zkutil.ErrUnsupported
	// ErrInvalidPath is returned for a path that the server or this library does not accept. A segment with
	// the name of a contender, such as lock-0000000000, would block a lock or an election on the path above it.
	ErrInvalidPath = zkutil.ErrInvalidPath
)

// WaitError is the error of each wait that ends without the lock, the permit or the leadership. That is an Acquire, a
// Do or a DoWithin whose time ran out or whose context was cancelled, a TryAcquire of a lock that another contender
// has, an Await of a latch, or a Run of a selector that never led before its deadline. It is in the *OpError, and
// matches ErrNotAcquired. It also matches the error and the cause of the context, if the context ended.
//
// WaitError distinguishes a lock that was never acquired from a deadline inside the function called by Do. errors.Is
// finds context.DeadlineExceeded in both.
//
//	err := m.Do(ctx, deduct)
//	var wait *recipes.WaitError
//	if errors.As(err, &wait) {
//		return fmt.Errorf("busy, position %d: %w", wait.Position, err) // deduct was not called
//	}
//
// A function that acquires other locks may return a WaitError of another lock. The Path of the OpError names
// the lock. A function that re-enters the same lock has to record that it was called.
type WaitError struct {
	// Position is the position in the queue when the queue was last read. The holder is in position 1. Contenders ahead
	// may no longer exist. Position is 0 if the queue was never read.
	Position int
	// Holder is the contender that was first then, if another contender was. Its Path is empty if the queue was never
	// read. Its ID is known after a wait of a second, for any position, because all waiters of a client on one path
	// share the read. The waiter directly behind the holder knows the ID at once. For the contender that is next to
	// get permits of a semaphore, Holder has the first permit. Nothing is read after the end of the context.
	Holder Participant
	// Waited is the time since the call; 0 at a re-entry, which never waits.
	Waited time.Duration
	// Err matches the error and the cause of the context. Err also wraps the last failure if anything failed,
	// such as the connection, and ErrNotEphemeral if the znode directly ahead is not ephemeral. For a TryAcquire,
	// and a DoWithin that must not wait, Err is ErrNotAcquired.
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
		text += zkutil.Printable(e.Holder.Path)
	}
	return text + ": " + fmt.Sprint(e.Err)
}

// Is reports whether target is ErrNotAcquired, which every WaitError matches.
func (e *WaitError) Is(target error) bool { return target == ErrNotAcquired }

// Unwrap returns the error of the context.
func (e *WaitError) Unwrap() error { return e.Err }

// PanicError is reported by a recipe when a user's function panics.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of the goroutine, as debug.Stack formats it, without the values of arguments
}

// Error returns "panic: …", without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic if the value is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// OpError is the type of the errors returned by recipes. It has the operation and the path, and unwraps to the
// cause.
type OpError struct {
	Op   string // such as "mutex: acquire"
	Path string
	Err  error
}

// Error returns "mutex: acquire /locks/a: …". A path with unprintable characters is quoted.
func (e *OpError) Error() string {
	if e.Path == "" {
		return e.Op + ": " + fmt.Sprint(e.Err)
	}
	return e.Op + " " + zkutil.Printable(e.Path) + ": " + fmt.Sprint(e.Err)
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }
