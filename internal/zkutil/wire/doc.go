// Package wire gives zk.Conn a net.Conn with the features that zk.Conn lacks. A [Wire] dials for a zk.Conn and
// reads the passing frames; a [Line] is a connection of a Wire. Package dial chooses the servers and opens the
// sockets.
//
// # What a Wire promises
//
//   - Own requests: a Wire carries the engine's own requests on zk.Conn's connection: see Own requests.
//   - Session timeout: a Wire reads the timeout granted by the server, which zk.Conn does not expose.
//   - Patience: each handshake is bounded by the owner's patience, as package dial bounds each dial. zk.Conn
//     waits for ten receive timeouts.
//   - Sockets: the previous socket is closed before each dial. zk.Conn leaks a socket per expired session.
//   - Failed writes: a failed write closes the socket. zk.Conn would report the error to a request more often
//     than the request's channel has room for, and then block forever (go-zookeeper PR 163 describes the fault
//     for credentials sent again).
//   - Pings: a Wire pings every T/10, where T is the session timeout; zk.Conn pings every T/3. The leader's
//     record of the session's last activity is then never far behind. An idle session sends a frame every T/4,
//     and a ping ahead of the next request.
//   - Watches: answers are held back after a reconnect until the watches are set again: see watchRestore.
//   - Malformed frames: the end of a malformed frame is withheld from zk.Conn, which would panic: see
//     [proto.Layout].
//   - Gaps: a Wire records when the server may have received nothing: see contact and Gaps. [Line.ProofLimit]
//     derives for how long a committed write proves the session.
//   - Last zxid: a handshake names the latest zxid in any answer, so that only a server that has seen at least
//     as much accepts the session. zk.Conn names the latest zxid in answers to its own requests.
//   - Bound sessions: where servers resume no session, a Wire reports the old session as expired, and saves pings,
//     which are transactions there: see bound.go.
//   - Forgotten sessions: a Wire ends a session that emptied or restored servers have forgotten: see
//     forgotten.go. zk.Conn would ask for the session forever.
//   - Login: a Wire logs in over SASL on each connection, before zk.Conn sees the answer to the handshake: see
//     credentials.go.
//   - Late answers: a Wire reads the answers on an abandoned connection: see [Line.Abandon].
//
// # Own requests
//
// [Line.Send] sends requests of the engine's own: several in one write, without a goroutine per request, and
// including operations that zk.Conn lacks. Their xids are below −1000, which zk.Conn never uses and servers
// treat like any other (FinalRequestProcessor). Their answers are taken out of the stream before zk.Conn sees
// the answers. zk.Conn keeps the handshake, the reconnect, the credentials and the user's requests.
//
//   - Order: the server executes and answers requests in the order of Send. zk.Conn has acted on an event
//     before a later answer is handed over. The exception is an operation unknown to the server: the server
//     answers at once, and ends the connection.
//   - Credentials: after a reconnect nothing is sent before zk.Conn has presented its credentials again.
//   - Answers: each request gets exactly one answer. If the line ends first, the answer is zk.ErrNoServer for a
//     request of which nothing was sent, and zk.ErrConnectionClosed for a request that may have been executed.
//     When a line is abandoned, its requests are given up, and a late answer still counts as a proof.
//   - Blocking: Send never blocks. Send writes only if the write can't block, see writeAtOnce; otherwise a
//     goroutine of the line writes.
//   - Malformed answers: a malformed or unexpected answer ends the line.
//   - Watches: a watch set by such a request exists on this connection alone. The event is reported to the
//     owner, and does not reach zk.Conn unless zk.Conn has a watch for the event as well.
//
// # Limits of a Wire
//
// A Wire knows neither trust, holds and watches of a session, nor when to abandon a connection. A Wire asks its
// owner for times and reports events to the owner, through the interface owner.
//
// # Where to look
//
//   - wire.go: a Wire, its owner, and the start of a connection.
//   - line.go, frames.go: a connection from the handshake on, its deadlines and pings, and the frames read.
//   - watches.go, restore.go: the watches of zk.Conn, and their restoration after a reconnect.
//   - request.go, outbox.go, answer.go: the engine's own requests.
//   - credentials.go: the credentials, and the login over SASL within the handshake.
//   - contact.go: the times of requests and answers.
//   - abandon.go: a connection given up while writes are in flight.
//   - bound.go: sessions that end with their connection.
//   - forgotten.go: how to tell servers that have lost transactions from servers without a quorum.
//
// # Concurrency
//
// All exported functions may be called from several goroutines. A Line has one reader and one writer at a time,
// like every net.Conn under zk.Conn. [Wire.Close] joins the goroutines of the lines. The goroutines of package
// dial are not joined: see [dial.Dialer.FinishUserCalls].
//
// # Order of locks
//
// A goroutine that holds one of these locks takes only locks further right:
//
//	lock of the owner → Wire.mu → contact.mu → lock of the owner's clock
//
// Therefore the owner may call any method of the wire under the owner's lock except [Line.Send], [Line.Close]
// and [Line.Abandon], which call Receivers. The wire calls the owner and Receivers with neither Wire.mu nor
// contact.mu held, except for Now. outbox.mu is taken last and for a moment. No lock of package dial is held
// during a call of the owner. The slot contact.writing is held during a write to the socket, and contact.mu may
// be taken with the slot; no lock is held while waiting for the slot.
//
// Where the user's dialer has made the connection, its SetReadDeadline, SetWriteDeadline and Close
// may run under Wire.mu. The contract of net.Conn is that the first two do not block.
package wire
