package wire

import (
	"bytes"
)

// A session of a ClickHouse Keeper is bound to its connection. The server discards the session id of a handshake, and
// always opens a new session (KeeperTCPHandler::receiveHandshake). zk.Conn would mistake the new session for the old one,
// and ask for its old watches, an operation at which older releases close the connection, forever. The wire recognizes such
// a server by the password in its answer: sixteen zero bytes, because no client ever has to present the password. A
// ZooKeeper's password is random (ZooKeeperServer.generatePasswd).
//
// After the end of a bound session's connection, the wire answers zk.Conn's next handshake itself, as a server answers for
// an expired session. zk.Conn drops its watches and opens a new session with the following handshake.
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
//     the leader is behind the server that answered, and counts from the previous transaction. That one was sent T/8 before
//     s at the earliest, or else there is a Gap.
//   - Reads do not end a Gap.

// setBound notes whether the session of the latest handshake is bound to its connection.
func (w *Wire) setBound(isBound bool) { w.isBound.Store(isBound) }

// IsBound reports whether the session of the latest handshake ends with its connection.
func (w *Wire) IsBound() bool { return w.isBound.Load() }

// isEmptyPassword reports whether a password consists of zero bytes.
func isEmptyPassword(password []byte) bool {
	return len(bytes.Trim(password, "\x00")) == 0
}
