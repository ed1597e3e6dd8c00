package recipes

import "github.com/zkrecipes/zkrecipes/internal/zkutil/session"

// ConnectionState is the state of a client's connection, in Curator's terms.
type ConnectionState int

// The numbers equal those of package session, to which this package converts: a test compares both.
const (
	// Suspended: the client is not connected to a server. The session may still be alive.
	Suspended ConnectionState = iota
	// Connected: a server has accepted the session.
	Connected
	// Reconnected is only an event, after Suspended or Lost. The session is the same as before unless Lost
	// came first.
	Reconnected
	// Lost: the session has expired, or can't be proven alive any more. The leases of the session have ended
	// before Lost is reported.
	Lost
	// Closed: the client is closed. No other state follows.
	Closed
)

// String returns the state's name in lower case.
func (s ConnectionState) String() string { return session.State(s).String() }
