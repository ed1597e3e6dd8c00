package zkutil

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	ErrNodeDeleted       = errors.New("znode deleted by someone else")
	ErrClosed            = errors.New("closed")
	ErrNotStarted        = errors.New("not started")
	ErrAlreadyStarted    = errors.New("already started")
	ErrStepDownGrace     = errors.New("step-down: the leader's function is still running")
	ErrNodeNotDeleted    = errors.New("znode not deleted")
	ErrSequenceExhausted = errors.New("sequence numbers of the parent znode are exhausted")
	ErrInvalidArgument   = errors.New("invalid argument")
	ErrOtherLayout       = errors.New("another kind of lock uses this path")
	ErrSessionFull       = errors.New("session full")
	ErrFailed            = errors.New("failed")
	ErrWorkGoesOn        = errors.New("work goes on after its term")
	ErrNoCandidate       = errors.New("no such candidate")
	ErrNotSteered        = errors.New("a candidate that can't be asked to yield is ahead")
	ErrMaxHold           = errors.New("held for the longest time allowed")
	ErrNotEphemeral      = errors.New("behind a znode that is not ephemeral")
	ErrUnsupported       = errors.New("operation not supported by the server")
	ErrLoginRefused      = errors.New("login refused")

	ErrCertificateExpired = errors.New("certificate expired")
)

var (
	// ErrUnavailable means that no server was connected for a whole operation timeout.
	ErrUnavailable = errors.New("not connected to a server")
	// ErrContenderLost means that the znode or the session of a contender is gone.
	ErrContenderLost = errors.New("position in the queue lost")
	// ErrShut is the cause of a context ended by the close of the session.
	ErrShut = errors.New("session closed")
	// ErrYielded is the logged reason of a term whose leader has stepped down for another candidate.
	ErrYielded = errors.New("yielded to another candidate")
	// ErrStale means that the queue may have changed since the last read.
	ErrStale = errors.New("queue has to be read again")
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

// transientCodes are codes without a name in zk.Conn after which the same request may succeed: system error,
// connection loss, operation timeout, unknown session (just ended), not read-only, request timeout, throttled.
var transientCodes = []int{-1, -4, -7, -12, -119, -122, -127} //nolint:gochecknoglobals // a constant list

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
		return !slices.Contains(transientCodes, code)
	}
	return IsAny(err, finalAnswers...)
}

// IsUnknownAnswer reports whether a server has refused a request with a code unknown here. The same request may
// succeed later.
func IsUnknownAnswer(err error) bool {
	code, ok := unnamedCode(err)
	return ok && !slices.Contains(transientCodes, code) && finalCodes[code] == ""
}

// Explained returns err, or for a code in finalCodes an error with the meaning and the remedy.
func Explained(err error) error {
	code, ok := unnamedCode(err)
	if !ok || finalCodes[code] == "" {
		return err
	}
	if code == proto.CodeLoginRequired {
		return fmt.Errorf("%w: %s: %w", ErrLoginRefused, finalCodes[code], err) // the code stays at the end, for unnamedCode
	}
	return fmt.Errorf("%s: %w", finalCodes[code], err) // as above
}

// unnamedCode returns the code of a server's answer without an error in zk.Conn.
func unnamedCode(err error) (code int, ok bool) {
	if err == nil {
		return 0, false
	}
	_, number, ok := strings.Cut(err.Error(), "unknown error: ")
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

// IsUnanswered reports whether the request behind err may have been executed: err is neither an answer nor
// proof that nothing was sent.
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
	if last != nil && !errors.Is(last, err) && IsTransient(last) {
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
