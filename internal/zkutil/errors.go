package zkutil

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
	ErrClosed            = errors.New("client closed")
	ErrSequenceExhausted = errors.New("sequence numbers of the parent znode are exhausted")
)

var (
	// errUnavailable: the gate stayed closed for a whole operation timeout.
	errUnavailable = errors.New("not connected to a server")
	// errPlaceLost: our znode is gone, or belongs to a session that is.
	errPlaceLost = errors.New("place in the queue lost")
	// errUntrusted: nothing proves right now that the session is alive.
	errUntrusted = errors.New("session not proven alive")
	// errStale: something changed since the last look.
	errStale = errors.New("queue has to be read again")
)

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

// transient reports whether the same call may succeed later.
func transient(err error) bool {
	return err != nil && !isAny(err, answers...) && !unimplemented(err) &&
		!isAny(err, ErrClosed, ErrSequenceExhausted, errPlaceLost,
			context.Canceled, context.DeadlineExceeded)
}

// unanswered reports whether the call that returned err may have been executed:
// everything that is neither an answer nor known never to have been sent.
func unanswered(err error) bool {
	return err != nil && !isAny(err, answers...) && !unimplemented(err) &&
		!isAny(err, zk.ErrNoServer, zk.ErrSessionMoved, errUnavailable)
}

// unimplemented reports whether the server does not know the operation. zk.Conn
// has no name for code -6, only a text.
func unimplemented(err error) bool {
	return err != nil && strings.HasSuffix(err.Error(), "unknown error: -6")
}

// interrupted is the error of a call whose ctx ended: it matches ctx.Err(), the
// cause of ctx, and last, the failure that was being retried.
func interrupted(ctx context.Context, last error) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if last != nil && !errors.Is(last, err) && transient(last) {
		err = fmt.Errorf("%w (last failure: %w)", err, last)
	}
	return err
}
