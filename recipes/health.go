package recipes

import "time"

// Health is the condition of a client at a moment (see [Client.Health]).
type Health struct {
	// State is the result of Client.State.
	State ConnectionState
	// Since is the time at which the client entered State, by the clock of this machine.
	Since time.Time
	// Server is the server to which the client is connected, and empty without a connection: "address:port", or
	// "name/address:port" if the client resolved the server's name.
	Server string
	// LastProof is the send time of the latest write that proved the session, because the quorum committed it.
	// LastProof is zero in a session without a proof so far. A client without leases sends writes rarely or never, so
	// an old proof matters only while leases are held: leases end 2/3 of the session timeout after LastProof.
	LastProof time.Time
	// SessionTimeout is the result of Client.SessionTimeout.
	SessionTimeout time.Duration
	// Err is the latest failure of a connection, of an attempt to connect, or of the session. Err stays set after the
	// client recovers; State shows whether it did. Err is nil if nothing failed.
	Err error
}

// Health returns the present condition of the client. Health sends nothing, and so suits a readiness handler.
func (c *Client) Health() Health {
	h := c.own("health").Health()
	return Health{
		State: ConnectionState(h.State), Since: h.Since, Server: h.Server, LastProof: h.LastProof,
		SessionTimeout: h.SessionTimeout, Err: h.Err,
	}
}
