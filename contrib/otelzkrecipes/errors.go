package otelzkrecipes

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
)

const (
	outcomeAcquired    = "acquired"
	outcomeNotAcquired = "not_acquired"
	outcomeTimeout     = "timeout"
	outcomeCanceled    = "canceled"
	outcomeError       = "error"

	outcomeReleased = "released"
	outcomeLost     = "lost"
	outcomeClosed   = "closed"
)

// losses are the causes with which a lease is lost.
var losses = []error{recipes.ErrSessionLost, recipes.ErrSuspended, recipes.ErrNodeDeleted} //nolint:gochecknoglobals // a constant list

// errorTypes are the values of error.type, in the order in which an error is compared: one that says why a
// context has ended comes before the error of the context, which comes before the failures on the way.
var errorTypes = []struct { //nolint:gochecknoglobals // a constant table
	err  error
	name string
}{
	{recipes.ErrNotAcquired, "not_acquired"},
	{recipes.ErrNodeDeleted, "node_deleted"},
	{recipes.ErrSessionLost, "session_lost"},
	{recipes.ErrSuspended, "suspended"},
	{recipes.ErrClosed, "closed"},
	{recipes.ErrReleased, "released"},
	{recipes.ErrSequenceExhausted, "sequence_exhausted"},
	{recipes.ErrOtherLayout, "other_layout"},
	{recipes.ErrInvalidPath, "invalid_path"},
	{recipes.ErrInvalidArgument, "invalid_argument"},
	{context.DeadlineExceeded, "deadline_exceeded"},
	{context.Canceled, "canceled"},
	{zk.ErrNoAuth, "no_auth"},
	{zk.ErrAuthFailed, "auth_failed"},
	{zk.ErrNoServer, "no_server"},
	{zk.ErrConnectionClosed, "connection_closed"},
}

// errorType returns the value of error.type, which is one of few: never the text, which has the path.
func errorType(err error) string {
	for _, known := range errorTypes {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	return "_OTHER"
}

// outcomeOf returns the outcome of an acquisition.
func outcomeOf(err error) string {
	if err == nil {
		return outcomeAcquired
	}
	switch errorType(err) {
	case "not_acquired":
		return outcomeNotAcquired
	case "deadline_exceeded":
		return outcomeTimeout
	case "canceled", "closed": // by the caller, who has ended a context, a client or an election
		return outcomeCanceled
	}
	return outcomeError
}

// leaseOutcomeOf returns the outcome of a lease. One that ends with its client was not lost.
func leaseOutcomeOf(cause error) string {
	switch {
	case cause == nil, errors.Is(cause, recipes.ErrReleased):
		return outcomeReleased
	case errors.Is(cause, recipes.ErrClosed):
		return outcomeClosed
	}
	return outcomeLost
}
