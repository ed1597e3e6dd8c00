package recipes

import (
	"strconv"
	"strings"
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
	// ErrClosed is returned by every call, and ends every lease, once the client is closed.
	ErrClosed = zkutil.ErrClosed
	// ErrSequenceExhausted is returned when the server has run out of sequence numbers
	// for a path: after 2147483647 the order of contenders means nothing. The numbers
	// start again when the parent znode is removed, which the server does by itself
	// while nobody uses it.
	ErrSequenceExhausted = zkutil.ErrSequenceExhausted
	// ErrInvalidArgument is returned for what no server was asked about, and what will be
	// refused the next time too: a nil client, an option with a wrong value, an id that is
	// too long, a path that ErrInvalidPath is returned for.
	ErrInvalidArgument = zkutil.ErrInvalidArgument
	// ErrInvalidPath is returned for a path that the server or this library refuses.
	ErrInvalidPath = zkutil.ErrInvalidPath
)

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
