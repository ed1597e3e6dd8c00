// Package wire puts a net.Conn under zk.Conn that does what zk.Conn leaves out. A [Wire] dials for
// one zk.Conn and reads the frames that pass; a [Line] is one of its connections.
//
// # What a Wire promises
//
//   - It carries the engine's own requests on zk.Conn's connection, beside zk.Conn's: see Own requests.
//   - It reads the session timeout that the server has granted, which zk.Conn does not tell.
//   - It bounds each dial and handshake by the owner's patience. zk.Conn waits for ten receive
//     timeouts.
//   - It closes the previous socket before each dial. zk.Conn leaks one per expired session.
//   - It turns a failed write into a closed socket. zk.Conn would report the error to a request more
//     often than the request's channel has room for, and then block for ever (go-zookeeper PR 163
//     has this for the credentials that are sent again).
//   - It pings every T/10, where T is the session timeout; zk.Conn pings every T/3. The leader's
//     record of the session's last activity is then never far behind. An idle session sends something
//     every T/4, and a ping ahead of its next request.
//   - It holds answers back after a reconnect until the watches are set again: see watchRestore.
//   - It withholds the end of a malformed frame from zk.Conn, which would panic: see layout.
//   - It records when the server may have received nothing: see contact and Gaps. From that follows
//     for how long a committed write proves the session: [Line.ProofLimit].
//   - It asks in a handshake for a server that has seen what the answers to our own requests told. zk.Conn
//     asks for what its own answers told.
//   - It reads the answers on a connection that was abandoned for another: see [Line.Abandon].
//   - It chooses the servers in turn, resolves their names in each round, and pauses between
//     rounds: see hosts.
//
// # Own requests
//
// [Line.Send] sends requests of the engine's own: several in one write, without a goroutine for each, and
// with the operations that zk.Conn lacks. Their xids are below −1000, which zk.Conn never uses and servers
// treat like any other (FinalRequestProcessor). Their answers are taken out of the stream before zk.Conn
// sees them. zk.Conn goes on owning the handshake, the reconnect, the credentials and the user's requests.
//
//   - Order: the server executes requests in the order of Send, and answers them in that order. zk.Conn has
//     acted on an event before an answer that comes behind it is handed over. A server that does not know an
//     operation is the exception: it says so at once, and ends the connection.
//   - Credentials: after a reconnect nothing is sent before zk.Conn has presented its credentials again.
//   - Each request gets exactly one answer. If the line ends first, that is zk.ErrNoServer for a request of
//     which nothing was sent, and zk.ErrConnectionClosed for one that may have been executed. When a line is
//     abandoned, its requests are given up, and a late answer to one still counts as a proof.
//   - Send never blocks: it writes only where that can't block, see writeAtOnce. Otherwise a goroutine of the line writes.
//   - A malformed or unexpected answer ends the line.
//   - A watch that such a request sets stands on this connection alone. Its event is told to the owner, and does not
//     reach zk.Conn unless that has a watch for it as well.
//
// # What a Wire does not know
//
// It knows neither trust, holds and watches of a session, nor when a connection should be abandoned.
// It asks its owner for times and tells it what has happened, through the interface that New takes.
//
// # Where to look
//
//   - wire.go, patience.go: a Wire, its owner, the dial and how long it may take.
//   - line.go, frames.go: one connection from the handshake on, and the frames that it reads.
//   - watches.go, restore.go: the watches of zk.Conn, and how they are set again after a reconnect.
//   - request.go, outbox.go, prompt.go, answer.go, credentials.go: the engine's own requests.
//   - contact.go, gaps.go, ping.go: what was sent and answered when, and what is sent so that it is known.
//   - abandon.go: a connection that was given up while writes are in flight.
//   - hosts.go, dial.go, secure.go, usercode.go: which server is next, and the socket to it.
//   - layout.go: the check of a frame's lengths.
//
// # Concurrency
//
// All exported functions may be called from several goroutines. A Line has one reader and one
// writer at a time, as every net.Conn under zk.Conn. The goroutines of the lines are joined in
// [Wire.Close]. The user's dialer and host provider run in goroutines of their own, because nothing
// can stop them: see userCode. [Wire.FinishUserCalls] lets the owner wait for those.
//
// # Order of locks
//
// A goroutine that holds one of these locks takes only those to its right:
//
//	hosts.mu → lock of the owner → Wire.mu → contact.mu → lock of the owner's clock
//
// Therefore the owner may ask the wire anything under its own lock but [Line.Send], [Line.Close] and
// [Line.Abandon], which call Receivers. The wire calls the owner and Receivers with neither Wire.mu nor
// contact.mu held, except for Now. outbox.mu is taken last and for a moment. The locks of userCode and of
// zkutil.Group are taken last and for a moment. The slot contact.writing is held during a write to
// the socket, and contact.mu may be taken in it; no lock is held while waiting for the slot.
//
// Where the user's dialer has made the connection, its SetReadDeadline, SetWriteDeadline and Close
// may run under Wire.mu. The contract of net.Conn is that the first two do not block.
package wire
