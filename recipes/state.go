package recipes

import "github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"

// ConnectionState is the state of a client's connection, in Curator's terms.
type ConnectionState int

// The numbers equal those of package connstate, to which this package converts. A test compares both.
const (
	// Suspended means that the client is not connected to a server. The session may still be alive.
	Suspended ConnectionState = iota
	// Connected means that a server accepted the session.
	Connected
	// Reconnected is only an event, after Suspended or Lost. The session is the same as before unless Lost was reported
	// first.
	Reconnected
	// Lost means that the session expired, or can't be proven alive any more. The leases of the session end before Lost
	// is reported.
	Lost
	// Closed means that the client is closed. No other state follows.
	Closed
)

// String returns the state's name in lower case.
func (s ConnectionState) String() string { return connstate.State(s).String() }
