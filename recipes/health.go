package recipes

import "time"

// Health is how a client is at a moment: see [Client.Health].
type Health struct {
	// State is what Client.State returns.
	State ConnectionState
	// Since is when the client entered that state, by the clock of this machine.
	Since time.Time
	// Server is the address of the server to which the client is connected, and empty if it is not.
	Server string
	// LastProof is when the latest write was sent that has proven the session: the quorum has committed it. It is
	// zero in a session that has had none. A client that holds nothing sends no writes, or rarely, so an old proof
	// says something only while there are leases: these end 2/3 of the session timeout after it.
	LastProof time.Time
	// SessionTimeout is what Client.SessionTimeout returns.
	SessionTimeout time.Duration
	// Err is the latest failure of a connection, of an attempt to connect, or of the session. It stays when the
	// client has recovered: State says whether it has. It is nil if there was none.
	Err error
}

// Health returns how the client is now. It sends nothing, so it suits a handler for readiness.
func (c *Client) Health() Health {
	h := c.session.Health()
	return Health{
		State: ConnectionState(h.State), Since: h.Since, Server: h.Server, LastProof: h.LastProof,
		SessionTimeout: h.SessionTimeout, Err: h.Err,
	}
}
