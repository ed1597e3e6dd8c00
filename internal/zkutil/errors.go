package zkutil

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
)

// The errors that package recipes publishes. They are here because the context of a hold ends with
// one of them as its cause.
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
)

var (
	// ErrUnavailable means that no server was connected for a whole operation timeout.
	ErrUnavailable = errors.New("not connected to a server")
	// ErrContenderLost means that the znode of a contender is gone, or its session is.
	ErrContenderLost = errors.New("position in the queue lost")
	// ErrShut is the cause of a context that has ended because the session was closed.
	ErrShut = errors.New("session closed")
	// ErrStale means that the queue may have changed since it was read.
	ErrStale = errors.New("queue has to be read again")
)

// Invalid returns err with its text, as an error that also matches ErrInvalidArgument.
func Invalid(err error) error { return invalid{err} }

type invalid struct{ error }

func (i invalid) Unwrap() error      { return i.error }
func (invalid) Is(target error) bool { return target == ErrInvalidArgument }

// finalAnswers are the errors with which a server refuses a request that it would refuse again. It has
// not executed the request.
var finalAnswers = []error{ //nolint:gochecknoglobals // a constant list
	zk.ErrNoNode, zk.ErrNoAuth, zk.ErrBadVersion, zk.ErrNoChildrenForEphemerals,
	zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrInvalidACL, zk.ErrInvalidFlags,
	zk.ErrAuthFailed, zk.ErrReconfigDisabled, zk.ErrBadArguments, zk.ErrAPIError,
	// From zk.Conn itself, before anything was sent.
	zk.ErrInvalidPath, zk.ErrShortBuffer,
	ErrSessionFull, // from ourselves, before anything was sent
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

// transientCodes are codes without a name in zk.Conn after which the same request may succeed: system
// error, connection loss, operation timeout, unknown session (one that has just ended), not
// read-only, request timeout, throttled.
var transientCodes = []int{-1, -4, -7, -12, -119, -122, -127} //nolint:gochecknoglobals // a constant list

// finalCodes are codes without a name in zk.Conn after which the same request will never succeed:
// unimplemented, ephemeral znode on a local session, session without SASL.
var finalCodes = []int{-6, -120, -124} //nolint:gochecknoglobals // a constant list

// IsRefused reports whether err is a server's answer that the request was not executed. It is
// final unless its code is unknown to us.
func IsRefused(err error) bool {
	if code, ok := unnamedCode(err); ok {
		return !slices.Contains(transientCodes, code)
	}
	return IsAny(err, finalAnswers...)
}

// IsUnknownAnswer reports whether a server has refused a request with a code that is not known
// here, such as -125 for an exceeded quota. The same request may succeed later.
func IsUnknownAnswer(err error) bool {
	code, ok := unnamedCode(err)
	return ok && !slices.Contains(transientCodes, code) && !slices.Contains(finalCodes, code)
}

// unnamedCode returns the code of a server's answer for which zk.Conn has no error of its own.
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

// IsTransient reports whether the same call may succeed later.
func IsTransient(err error) bool {
	return err != nil && (!IsRefused(err) || IsUnknownAnswer(err)) &&
		!IsAny(err, ErrClosed, ErrSequenceExhausted, ErrContenderLost, ErrOtherLayout,
			context.Canceled, context.DeadlineExceeded)
}

// IsUnanswered reports whether the call that returned err may have been executed:
// everything that is neither an answer nor known never to have been sent.
func IsUnanswered(err error) bool {
	return err != nil && !IsRefused(err) &&
		!IsAny(err, zk.ErrNoServer, zk.ErrSessionMoved, ErrUnavailable)
}

// EndOf is the error of a wait that the end of ctx has ended: it matches ctx.Err() and the cause
// of ctx.
func EndOf(ctx context.Context) error { return Interrupted(ctx, nil) }

// Interrupted is the error of a call whose ctx ended: it matches ctx.Err(), the
// cause of ctx, and last, the failure that was being retried.
func Interrupted(ctx context.Context, last error) error {
	err := ctx.Err()
	cause := context.Cause(ctx)
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

// ContenderLost makes the attempt join again at the tail; cause is what its caller gets
// to see when the policy forbids that.
func ContenderLost(cause error) error { return fmt.Errorf("%w: %w", ErrContenderLost, cause) }
