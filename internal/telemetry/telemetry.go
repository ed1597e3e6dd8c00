package telemetry

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Outcomes of acquisitions, and of leases.
const (
	OutcomeAcquired    = "acquired"
	OutcomeNotAcquired = "not_acquired"
	OutcomeTimeout     = "timeout"
	OutcomeCanceled    = "canceled"
	OutcomeError       = "error"

	OutcomeReleased = "released"
	OutcomeLost     = "lost"
	OutcomeClosed   = "closed"
	OutcomeFailed   = "failed"
	OutcomeMaxHold  = "max_hold"
)

// Losses are the values of ErrorType for the causes with which a lease is lost.
func Losses() (types []string) {
	for _, cause := range []error{recipes.ErrSessionLost, recipes.ErrSuspended, recipes.ErrNodeDeleted} {
		types = append(types, ErrorType(cause))
	}
	return types
}

// errorTypes are the values of error.type, in the order in which an error is compared: first the causes for the end of a
// context, then the errors of the context, then the failures on the way.
var errorTypes = []struct { //nolint:gochecknoglobals // a constant table
	err  error
	name string
}{
	{recipes.ErrNodeDeleted, "node_deleted"},
	{recipes.ErrSessionLost, "session_lost"},
	{recipes.ErrSuspended, "suspended"},
	{recipes.ErrMaxHold, "max_hold"},
	{recipes.ErrClosed, "closed"},
	{recipes.ErrReleased, "released"},
	{recipes.ErrSequenceExhausted, "sequence_exhausted"},
	{recipes.ErrOtherLayout, "other_layout"},
	{recipes.ErrInvalidPath, "invalid_path"},
	{recipes.ErrInvalidArgument, "invalid_argument"},
	{context.DeadlineExceeded, "deadline_exceeded"},
	{context.Canceled, "canceled"},
	{recipes.ErrNotAcquired, "not_acquired"}, // behind the errors of a context, because each WaitError matches it
	{zk.ErrNoAuth, "no_auth"},
	{zk.ErrAuthFailed, "auth_failed"},
	{zk.ErrNoServer, "no_server"},
	{zk.ErrConnectionClosed, "connection_closed"},
}

// ErrorType returns the value of error.type, from a short list. The text of the error is no value, because the text has the path.
func ErrorType(err error) string {
	for _, known := range errorTypes {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	return "_OTHER"
}

// OutcomeOf returns the outcome of an acquisition.
func OutcomeOf(err error) string {
	if err == nil {
		return OutcomeAcquired
	}
	switch ErrorType(err) {
	case "not_acquired":
		return OutcomeNotAcquired
	case "deadline_exceeded":
		return OutcomeTimeout
	case "canceled", "closed": // by the caller, who has ended a context, a client or an election
		return OutcomeCanceled
	}
	return OutcomeError
}

// OutcomeOfLease returns the outcome of a lease. A lease that ends with its client, with a failure of the leader's work, or at
// the bound of WithMaxHold was not lost.
func OutcomeOfLease(cause error) string {
	switch {
	case cause == nil, errors.Is(cause, recipes.ErrReleased):
		return OutcomeReleased
	case errors.Is(cause, recipes.ErrClosed):
		return OutcomeClosed
	case errors.Is(cause, recipes.ErrFailed):
		return OutcomeFailed
	case errors.Is(cause, recipes.ErrMaxHold):
		return OutcomeMaxHold
	}
	return OutcomeLost
}

// ServerName returns the name of a server, or the address of a nameless server. The name of no server is empty.
func ServerName(server string) string {
	host, _, isNamed := strings.Cut(server, "/") // name/address:port
	if !isNamed {
		if address, _, err := net.SplitHostPort(server); err == nil {
			return address
		}
	}
	return host
}

// IsElection reports whether the leases of a recipe are terms of leadership.
func IsElection(recipe string) bool { return recipe == "latch" || recipe == "selector" }

// Leases returns the number of leases of an acquisition.
func Leases(permits int) int64 { return int64(max(permits, 1)) }

// StateNumber orders the states by severity, so that the maximum over many clients is the worst state.
func StateNumber(state recipes.ConnectionState) int64 {
	switch state {
	case recipes.Connected, recipes.Reconnected:
		return 0
	case recipes.Suspended:
		return 1
	case recipes.Lost:
		return 2
	}
	return 3
}

// Buckets are the bounds of histograms, in seconds. The lowest bound is for an uncontended lock.
func Buckets() []float64 {
	return []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
}
