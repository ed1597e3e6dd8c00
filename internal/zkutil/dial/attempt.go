package dial

import (
	"errors"
	"net"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Attempt is an attempt to reach a server. It consists of a dial and a handshake.
type Attempt struct {
	dialer    *Dialer
	to        host
	dialledAt time.Time
	isFull    bool // Patience is the owner's full patience

	// Patience bounds the dial, and then the handshake.
	Patience time.Duration
}

// Dial dials server, which the Provider's Next returned. Before Dial returns an error, it calls NoteFailure.
func (d *Dialer) Dial(network, server string) (net.Conn, *Attempt, error) {
	a := &Attempt{dialer: d, to: d.hosts.find(server)}
	if a.to.err != nil {
		a.NoteFailure(a.to.err)
		return nil, nil, a.to.err
	}
	a.Patience, a.isFull = d.handshakePatience(server)
	a.dialledAt = time.Now()
	conn, err := d.openWithin(a.Patience, network, a.to)
	if err != nil {
		a.NoteFailure(err)
		return nil, nil, err
	}
	return conn, a, nil
}

// Server returns the server as the Provider's Next has.
func (a *Attempt) Server() string { return a.to.String() }

// Name returns the server as configured, host:port.
func (a *Attempt) Name() string { return a.to.server }

// IsResolved reports whether Server contains a name and an address.
func (a *Attempt) IsResolved() bool { return a.to.address != a.to.server }

// NoteFailure counts a failed dial or handshake against the server, and reports the failure to the Owner.
func (a *Attempt) NoteFailure(err error) {
	a.dialer.noteTimeout(a.Server(), a.isFull, err)
	a.dialer.owner.OnFailure(err, a.dialer.hosts.noteFailure(a.Server(), refusalOf(err)))
}

// NoteAnswer records that the server answered the handshake, even if the answer says that the session expired. In that case
// zk.Conn does not call the Provider's Connected.
func (a *Attempt) NoteAnswer(isExpired bool) {
	a.dialer.patience.noteAnswer(time.Since(a.dialledAt), isExpired)
	a.dialer.hosts.noteGood(a.Server())
	a.dialer.noteAnswer()
	if isExpired {
		a.dialer.hosts.noteAnswer()
	}
}

// NoteCommit records that the connection served a write, so that its end begins no series of useless connections.
func (a *Attempt) NoteCommit() { a.dialer.hosts.noteCommit() }

// refusalOf reports whether an attempt failed for a persistent reason, because TLS or a login is refused.
func refusalOf(err error) Refusal {
	switch {
	case isRefusedByTLS(err):
		return CertainRefusal
	case !errors.Is(err, zkutil.ErrLoginRefused):
		return NoRefusal
	case errors.Is(err, zkutil.ErrHungUp):
		return LikelyRefusal
	default:
		return CertainRefusal
	}
}
