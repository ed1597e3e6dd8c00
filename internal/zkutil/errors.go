package zkutil

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// The errors published by package recipes. Package zkutil has the errors because the cause of a hold's context
// is one of them.
var (
	ErrNotAcquired       = errors.New("held by another")
	ErrNotHeld           = errors.New("not held")
	ErrSessionLost       = errors.New("session lost")
	ErrSuspended         = errors.New("connection suspended")
	ErrReleased          = errors.New("released")
	ErrNodeDeleted       = errors.New("znode deleted by another client")
	ErrClosed            = errors.New("closed")
	ErrNotStarted        = errors.New("not started")
	ErrAlreadyStarted    = errors.New("already started")
	ErrStepDownGrace     = errors.New("work is still running")
	ErrNodeNotDeleted    = errors.New("znode not deleted")
	ErrSequenceExhausted = errors.New("sequence numbers of the parent znode are exhausted")
	ErrInvalidArgument   = errors.New("invalid argument")
	ErrOtherLayout       = errors.New("another kind of lock uses this path")
	ErrSessionFull       = errors.New("session full")
	ErrFailed            = errors.New("failed")
	ErrWorkGoesOn        = errors.New("work still running after its term ended")
	ErrNoCandidate       = errors.New("no such candidate")
	ErrNotSteered        = errors.New("a candidate ahead has no priority, so it can't be asked to yield")
	ErrMaxHold           = errors.New("held for the maximum time")
	ErrNotEphemeral      = errors.New("behind a znode that is not ephemeral")
	ErrUnsupported       = errors.New("operation not supported by the server")
	ErrLoginRefused      = errors.New("login refused")

	ErrCertificateExpired = errors.New("certificate expired")
)

var (
	// ErrUnavailable means that no server was connected for a whole operation timeout.
	ErrUnavailable = errors.New("not connected to a server")
	// ErrContenderLost means that the znode or the session of a contender no longer exists.
	ErrContenderLost = errors.New("position in the queue lost")
	// ErrShut is the cause of a context ended by the close of the session.
	ErrShut = errors.New("session closed")
	// ErrYielded is the logged reason of a term whose leader stepped down for another candidate.
	ErrYielded = errors.New("yielded to another candidate")
	// ErrHungUp means that a server ended the connection without an answer, so that the cause is a guess.
	ErrHungUp = errors.New("the server closed the connection without an answer")
	// ErrStale means that the queue, or a znode, may have changed since the last read.
	ErrStale = errors.New("must be read again")
)

// Invalid returns an error with the text of err, which also matches ErrInvalidArgument.
func Invalid(err error) error { return invalid{err} }

type invalid struct{ error }

func (i invalid) Unwrap() error      { return i.error }
func (invalid) Is(target error) bool { return target == ErrInvalidArgument }

// finalAnswers are the errors with which a server refuses a request without executing the request. The server
// would refuse the same request again.
var finalAnswers = []error{ //nolint:gochecknoglobals // a constant list
	zk.ErrNoNode, zk.ErrNoAuth, zk.ErrBadVersion, zk.ErrNoChildrenForEphemerals,
	zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrInvalidACL, zk.ErrInvalidFlags,
	zk.ErrAuthFailed, zk.ErrReconfigDisabled, zk.ErrBadArguments, zk.ErrAPIError,
	// From zk.Conn itself, before any request was sent.
	zk.ErrInvalidPath, zk.ErrShortBuffer,
	ErrSessionFull, // from package session, before any request was sent
}

// IsAny reports whether err is one of targets.
func IsAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// transientCodes maps codes without a name in zk.Conn, after which the same request may succeed, to the meaning.
var transientCodes = map[int]string{ //nolint:gochecknoglobals // a constant table
	-1:   "system error of the server",
	-4:   "connection loss on the server",
	-7:   "the operation timed out on the server",
	-12:  "the server does not know the session",
	-119: "the server is read-only",
	-122: "the request timed out on the server",
	-127: "the server throttles requests",
}

// finalCodes maps codes without a name in zk.Conn, after which the same request will not succeed until an
// operator intervenes, to the meaning and the remedy.
var finalCodes = map[int]string{ //nolint:gochecknoglobals // a constant table
	-6:   "the server does not know the operation",
	-120: "the server makes local sessions, which may not own ephemeral znodes: set localSessionsUpgradingEnabled on the servers",
	-124: "the servers require that clients authenticate (sessionRequireClientSASLAuth or enforce.auth.enabled): log in with WithSASL, or present a credential of a scheme that they accept with WithAuth",
	-125: "the quota of this path is exceeded: raise it with setquota, or delete znodes below it",
}

// IsRefused reports whether err is a server's answer that the request was not executed. The answer is final
// unless the code is unknown here.
func IsRefused(err error) bool {
	if code, ok := unnamedCode(err); ok {
		return transientCodes[code] == ""
	}
	return IsAny(err, finalAnswers...)
}

// IsUnknownAnswer reports whether a server refused a request with a code unknown here. The same request may succeed
// later.
func IsUnknownAnswer(err error) bool {
	code, ok := unnamedCode(err)
	return ok && transientCodes[code] == "" && finalCodes[code] == ""
}

// explainedError is a server's answer with the meaning of its code in place of the number.
type explainedError struct {
	code int
	text string
	err  error
}

func (e *explainedError) Error() string { return e.text }
func (e *explainedError) Unwrap() error { return e.err }

// codePrefix is the text of zk.Conn before a code without a name.
const codePrefix = "unknown error: "

// Explained returns err, or for a code in finalCodes or transientCodes an error with the meaning and the remedy.
func Explained(err error) error {
	code, ok := unnamedCode(err)
	meaning := cmp.Or(finalCodes[code], transientCodes[code])
	if !ok || meaning == "" {
		return err
	}
	before, _, isNumber := strings.Cut(err.Error(), codePrefix)
	if !isNumber { // explained before
		return err
	}
	err = &explainedError{code, before + meaning, err}
	if code == proto.CodeLoginRequired {
		return fmt.Errorf("%w: %w", ErrLoginRefused, err)
	}
	return err
}

// unnamedCode returns the code of a server's answer without an error in zk.Conn.
func unnamedCode(err error) (code int, ok bool) {
	if err == nil {
		return 0, false
	}
	if explained, ok := AsType[*explainedError](err); ok {
		return explained.code, true
	}
	_, number, ok := strings.Cut(err.Error(), codePrefix)
	if !ok {
		return 0, false
	}
	code, err = strconv.Atoi(number)
	return code, err == nil
}

// IsUnimplemented reports whether the server does not know the operation.
func IsUnimplemented(err error) bool {
	code, ok := unnamedCode(err)
	return ok && code == -6
}

// IsNoWatcher reports whether the server does not have the watch to remove.
func IsNoWatcher(err error) bool {
	code, ok := unnamedCode(err)
	return ok && code == -121
}

// IsTransient reports whether the same call may succeed later.
func IsTransient(err error) bool {
	return err != nil && (!IsRefused(err) || IsUnknownAnswer(err)) &&
		!IsAny(err, ErrClosed, ErrSequenceExhausted, ErrContenderLost, ErrOtherLayout, ErrUnsupported,
			context.Canceled, context.DeadlineExceeded)
}

// IsUnanswered reports whether the server may have executed the request behind err, because err is neither an answer
// nor proof that nothing was sent.
func IsUnanswered(err error) bool {
	return err != nil && !IsRefused(err) &&
		!IsAny(err, zk.ErrNoServer, zk.ErrSessionMoved, ErrUnavailable)
}

// EndOf returns the error of a wait ended by ctx, which matches ctx.Err() and the cause of ctx.
func EndOf(ctx context.Context) error { return Interrupted(ctx, nil) }

// Interrupted returns the error of a call ended by ctx, which matches ctx.Err(), the cause of ctx, and last,
// the failure being retried.
func Interrupted(ctx context.Context, last error) error {
	err := ctx.Err()
	cause := CauseOf(ctx)
	if errors.Is(cause, ErrShut) {
		return ErrClosed
	}
	if !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if IsTransient(last) {
		err = fmt.Errorf("%w (last failure: %w)", err, last)
	}
	return err
}

// CauseOf returns the cause of an ended ctx, and ctx.Err() in place of a cause whose methods panic, as those of a nil pointer may: package
// errgroup passes on any error as the cause.
func CauseOf(ctx context.Context) error {
	if cause := context.Cause(ctx); IsUsable(cause) {
		return cause
	}
	return ctx.Err()
}

// ContenderLost returns an error that makes the attempt join again at the tail. The caller sees cause if the
// policy forbids another attempt.
func ContenderLost(cause error) error { return fmt.Errorf("%w: %w", ErrContenderLost, cause) }

// AsType returns the first error of type E in the tree of err, as errors.AsType does since Go 1.26.
func AsType[E error](err error) (target E, ok bool) {
	ok = errors.As(err, &target)
	return target, ok
}

// deniedError is a zk.ErrNoAuth that names the znode whose ACL refuses. zk.Conn's text is "not authenticated", which
// misleads, because the server accepts any digest, and later finds no ACL with the digest.
type deniedError struct {
	what string // is not permitted
	path string // of the znode whose ACL decides
}

// Denied returns Explained(err), or for zk.ErrNoAuth an error that names the refused operation and the znode.
func Denied(err error, what, path string) error {
	if !errors.Is(err, zk.ErrNoAuth) {
		return Explained(err)
	}
	return &deniedError{what, path}
}

func (e *deniedError) Error() string {
	return "no permission to " + e.what + " " + Printable(e.path) + " (wrong credentials, or none that its ACL names)"
}

func (*deniedError) Unwrap() error { return zk.ErrNoAuth }

// ParentOf returns the path of the znode whose ACL decides about the deletion of path.
func ParentOf(path string) string {
	parent, _ := Split(path)
	return parent
}

// IsEndOf reports whether err only reports the end of ctx: every branch of the error tree ends in the error or
// the cause of ctx.
func IsEndOf(ctx context.Context, err error) bool {
	switch {
	case ctx.Err() == nil:
		return false
	case isSame(err, context.Cause(ctx)):
		return true
	}
	switch wrapper := err.(type) { //nolint:errorlint // IsEndOf walks the tree
	case interface{ Unwrap() error }:
		return IsEndOf(ctx, wrapper.Unwrap())
	case interface{ Unwrap() []error }:
		some := false
		for _, branch := range wrapper.Unwrap() {
			if !IsEndOf(ctx, branch) {
				return false
			}
			some = true
		}
		return some
	default:
		return matchesEndOf(ctx, err) // a leaf may have a method Is
	}
}

// matchesEndOf reports whether err matches the error or the cause of an ended ctx. A cause that can't be compared does not match, because
// errors.Is may panic.
func matchesEndOf(ctx context.Context, err error) bool {
	cause := context.Cause(ctx)
	return errors.Is(err, ctx.Err()) || isComparable(cause) && errors.Is(err, cause)
}

// isSame compares with ==, but returns false for incomparable values, for which == panics.
func isSame(err, end error) bool {
	return isComparable(end) && err == end //nolint:errorlint // only this very error
}

// isComparable looks at the value, because its type does not show what the interfaces in its fields have.
func isComparable(err error) bool { return reflect.ValueOf(err).Comparable() }

// Both joins two errors in a single line of text. Either may be nil.
func Both(first, second error) error {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	default:
		return &joinedError{first, second, "; "}
	}
}

// LossAndError joins a loss with the error that the holder's function returned after the loss, in a single line
// of text. Either may be nil.
func LossAndError(loss, err error) error {
	if loss == nil || err == nil {
		return Both(loss, err)
	}
	return &joinedError{loss, err, "; the function returned: "}
}

type joinedError struct {
	first, second error
	between       string
}

func (b *joinedError) Error() string   { return b.first.Error() + b.between + b.second.Error() }
func (b *joinedError) Unwrap() []error { return []error{b.first, b.second} }

// TryMethods calls the methods of a user's error, and panics if they panic, as those of a nil pointer may. Call TryMethods where a panic
// is contained: afterwards the library may use the error anywhere.
func TryMethods(err error) {
	if err == nil {
		return
	}
	_ = err.Error()
	_ = errors.Is(err, errUnmatched)
	_, _ = AsType[*unmatched](err)
}

// unmatched is a type of errors without any errors, so that TryMethods walks through the whole tree of an error.
type unmatched struct{ error }

var errUnmatched error = &unmatched{}

// IsUsable reports whether the methods of a user's error can be called without a panic.
func IsUsable(err error) (ok bool) {
	defer func() { ok = recover() == nil }()
	TryMethods(err)
	return true
}
