package zkutil

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// The sentinels that package recipes publishes. They live here because a hold's
// context ends with them as its cause.
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
)

var (
	// errUnavailable: the gate stayed closed for a whole operation timeout.
	errUnavailable = errors.New("not connected to a server")
	// errUnanswered: connected, but the server is silent.
	errUnanswered = errors.New("the server does not answer")
	// errPlaceLost: our znode is gone, or belongs to a session that is.
	errPlaceLost = errors.New("place in the queue lost")
	// errUntrusted: nothing proves right now that the session is alive.
	errUntrusted = errors.New("session not proven alive")
	// errShut: the cause of a context that ended because the session was closed.
	errShut = errors.New("session closed")
	// errNotZooKeeper: a handshake was answered by something else.
	errNotZooKeeper = errors.New("the answer is not ZooKeeper's")
	// errMalformed: a frame in an established connection that is none.
	errMalformed = errors.New("the server has sent a malformed frame")
	// errWatchesRefused: after a reconnect, the server did not take the watches back.
	errWatchesRefused = errors.New("the server does not set the watches again")
	// errLeft: the connection was given up for another.
	errLeft = errors.New("the server did not answer in time")
	// errStale: something changed since the last look.
	errStale = errors.New("queue has to be read again")
)

// Invalid marks err, without a change of its text, as an ErrInvalidArgument.
func Invalid(err error) error { return invalid{err} }

type invalid struct{ error }

func (i invalid) Unwrap() error      { return i.error }
func (invalid) Is(target error) bool { return target == ErrInvalidArgument }

// answers are the errors with which a server refuses a request for good: it was
// not executed, and repeating it unchanged gets the same answer.
var answers = []error{ //nolint:gochecknoglobals // a constant list
	zk.ErrNoNode, zk.ErrNoAuth, zk.ErrBadVersion, zk.ErrNoChildrenForEphemerals,
	zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrInvalidACL, zk.ErrInvalidFlags,
	zk.ErrAuthFailed, zk.ErrReconfigDisabled, zk.ErrBadArguments, zk.ErrAPIError,
	// Found wrong by zk.Conn itself, before anything was sent.
	zk.ErrInvalidPath, zk.ErrShortBuffer,
}

// isAny reports whether err is one of targets.
func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// passing are the codes without a name in zk.Conn that say nothing final: system
// error, connection loss, operation timeout, unknown session (one that ended just now),
// not read-only, request timeout, throttled.
var passing = []int{-1, -4, -7, -12, -119, -122, -127} //nolint:gochecknoglobals // a constant list

// lasting are the codes without a name in zk.Conn that say that the same request will never
// be executed: unimplemented, ephemeral znode on a local session, session without SASL.
var lasting = []int{-6, -120, -124} //nolint:gochecknoglobals // a constant list

// refused reports whether err is a server's answer that the request was not executed. It is
// final unless its code is unknown to us.
func refused(err error) bool {
	if code, ok := unnamed(err); ok {
		return !slices.Contains(passing, code)
	}
	return isAny(err, answers...)
}

// unknownAnswer reports whether a server has refused a request with a code that is not known
// here, such as -125 for an exceeded quota. The same request may succeed later.
func unknownAnswer(err error) bool {
	code, ok := unnamed(err)
	return ok && !slices.Contains(passing, code) && !slices.Contains(lasting, code)
}

// unnamed returns the code of a server's answer for which zk.Conn has a text alone.
func unnamed(err error) (code int, ok bool) {
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

// unimplemented reports whether the server does not know the operation.
func unimplemented(err error) bool {
	code, ok := unnamed(err)
	return ok && code == -6
}

// transient reports whether the same call may succeed later.
func transient(err error) bool {
	return err != nil && (!refused(err) || unknownAnswer(err)) &&
		!isAny(err, ErrClosed, ErrSequenceExhausted, errPlaceLost,
			context.Canceled, context.DeadlineExceeded)
}

// judge returns what tells, for the attempts at one step that a caller waits for, whether to
// go on after a failure: if it is transient. An answer with an unknown code is repeated for
// one operation timeout only, because a caller whose context has no end would never hear of it;
// and not at all for a candidate, who does so itself and reports it.
func (s *Session) judge(ctx context.Context) func(error) bool {
	var since time.Time // of the first unknown answer
	return func(err error) bool {
		switch _, candidate := ctx.Value(leftoversKey{}).(*leftovers); {
		case !unknownAnswer(err):
			return transient(err)
		case candidate:
			return false
		}
		if since.IsZero() {
			since = time.Now()
		}
		return time.Since(since) < s.cfg.OperationTimeout
	}
}

// unanswered reports whether the call that returned err may have been executed:
// everything that is neither an answer nor known never to have been sent.
func unanswered(err error) bool {
	return err != nil && !refused(err) &&
		!isAny(err, zk.ErrNoServer, zk.ErrSessionMoved, errUnavailable)
}

// EndOf is the error of a wait that the end of ctx has ended: it matches ctx.Err() and the cause
// of ctx.
func EndOf(ctx context.Context) error { return interrupted(ctx, nil) }

// interrupted is the error of a call whose ctx ended: it matches ctx.Err(), the
// cause of ctx, and last, the failure that was being retried.
func interrupted(ctx context.Context, last error) error {
	err := ctx.Err()
	cause := context.Cause(ctx)
	if errors.Is(cause, errShut) {
		return ErrClosed
	}
	if !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if last != nil && !errors.Is(last, err) && transient(last) {
		err = fmt.Errorf("%w (last failure: %w)", err, last)
	}
	return err
}
