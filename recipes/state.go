package recipes

import "github.com/zkrecipes/zkrecipes/internal/zkutil"

// ConnectionState is the state of a client's connection, in Curator's terms.
type ConnectionState int

const (
	// Suspended means: no server is connected; the session may well be alive.
	Suspended = ConnectionState(zkutil.Suspended)
	// Connected means: a server has accepted the session.
	Connected = ConnectionState(zkutil.Connected)
	// Reconnected is only ever an event, after Suspended or Lost. The session is the
	// old one unless Lost came before.
	Reconnected = ConnectionState(zkutil.Reconnected)
	// Lost means: the session has expired, or can't be proven alive any more. Leases have
	// ended by the time it is told.
	Lost = ConnectionState(zkutil.Lost)
	// Closed is final.
	Closed = ConnectionState(zkutil.Closed)
)

// String returns the state's name in lower case.
func (s ConnectionState) String() string { return zkutil.State(s).String() }
