package wire

import (
	"bytes"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// A session of a ClickHouse Keeper is bound to its connection. The server discards the session id of a handshake,
// and always opens a new session (KeeperTCPHandler::receiveHandshake). zk.Conn would take the new session for the
// old one: it would ask for its old watches, an operation at which older releases close the connection, forever.
// The wire recognizes such a server by the password in its answer: sixteen zero bytes, because nobody ever has
// to present the password. A ZooKeeper's password is random (ZooKeeperServer.generatePasswd).
//
// When the connection of a bound session has ended, the wire answers zk.Conn's next handshake itself, as a server
// answers for an expired session. zk.Conn gives its watches up and opens a new session with the following handshake.
//
// On these servers each ping is a transaction (ZooKeeperHeartbeatRequest::isReadRequest). The leader extends a
// session by T when it executes a transaction of the session (KeeperStorage::processRequest), and reads extend
// nothing at the leader. So:
//
//   - A session without holds sends a ping only after T/3 without a write or a ping, and zk.Conn's pings are dropped.
//     The wire looks every T/10, so that the leader hears of the session at least every 2T/5 or so. T is then never
//     over for a client that runs. A grant needs a proof anyway, and a longer time without a transaction counts as a Gap,
//     which shortens the first proofs after that.
//   - A session with holds pings every T/10, as on a ZooKeeper. A write sent at s proves the session until s + 2T/3 even if
//     the leader has fallen behind the server that has answered, and goes by the transaction before: that one was sent
//     T/8 before s at the earliest, or else there is a Gap.
//   - Reads do not end a Gap.

// setBound notes whether the session of the latest handshake is bound to its connection.
func (w *Wire) setBound(isBound bool) { w.isBound.Store(isBound) }

// IsBound reports whether the session of the latest handshake ends with its connection.
func (w *Wire) IsBound() bool { return w.isBound.Load() }

// isEmptyPassword reports whether a password consists of zero bytes.
func isEmptyPassword(password []byte) bool {
	return len(bytes.Trim(password, "\x00")) == 0
}

// setBound notes that pings are transactions, and that reads extend no session.
func (c *contact) setBound(isBound bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isBound = isBound
}

// savesPings reports whether pings are transactions, and nothing is held.
func (c *contact) savesPings() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isBound && !c.isHolding.Load()
}

// isCommittedLocked reports whether the quorum commits a request, or has to agree to it.
func (c *contact) isCommittedLocked(f sentFrame) bool {
	return f.isWrite() || c.isBound && f.op == proto.OpPing
}

// reachedAtLocked returns when the latest request was sent that has extended the session.
func (c *contact) reachedAtLocked() time.Time {
	if c.isBound {
		return c.writeSentAt
	}
	return c.sentAt
}
