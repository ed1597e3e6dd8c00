// Package wire gives zk.Conn a net.Conn with the features that zk.Conn lacks. A [Wire] dials for a zk.Conn and
// reads the passing frames; a [Line] is a connection of a Wire. Package dial chooses the servers and opens the
// sockets.
//
// # What a Wire promises
//
//   - Own requests. A Wire carries the engine's own requests on zk.Conn's connection (see Own requests).
//   - Session timeout. A Wire reads the timeout granted by the server, which zk.Conn does not expose.
//   - Patience. Each handshake is bounded by the owner's patience, as package dial bounds each dial. zk.Conn waits for
//     ten receive timeouts.
//   - Sockets. The previous socket is closed before each dial. zk.Conn leaks a socket per expired session.
//   - Failed writes. A failed write closes the socket. zk.Conn would report the error to a request more often than the
//     request's channel has room for, and then block forever (go-zookeeper PR 163 describes the fault for credentials
//     sent again).
//   - Pings. A Wire pings every T/10, where T is the session timeout; zk.Conn pings every T/3. The leader's record of
//     the session's last activity is then never far behind. An idle session sends a frame every T/4, and a ping ahead
//     of the next request.
//   - Watches. Answers are held back after a reconnect until the watches are set again (see watchRestore).
//   - Malformed frames. The end of a malformed frame is withheld from zk.Conn, which would panic (see [proto.Layout]).
//   - Gaps. A Wire records when the server may have received nothing (see [core.Contact]). [Line.ProofLimit] derives
//     for how long a committed write proves the session.
//   - Last zxid. A handshake names the latest zxid in any answer, so that only a server with at least these
//     transactions accepts the session. zk.Conn names the latest zxid in answers to its own requests.
//   - Bound sessions. Where servers resume no session, a Wire reports the old session as expired, and saves pings,
//     which are transactions there (see bound.go).
//   - Forgotten sessions. A Wire ends a session that emptied or restored servers no longer know (see forgotten.go).
//     zk.Conn would ask for the session forever.
//   - Login. A Wire logs in over SASL on each connection, before zk.Conn sees the answer to the handshake (see
//     credentials.go).
//   - Late answers. A Wire reads the answers on an abandoned connection (see [Line.Abandon]).
//
// # Own requests
//
// [Line.Send] sends requests of the engine's own: several in one write, without a goroutine per request, and
// including operations that zk.Conn lacks. Their xids are below −1000, which zk.Conn never uses and servers
// treat like any other (FinalRequestProcessor). Their answers are taken out of the stream before zk.Conn sees
// the answers. zk.Conn keeps the handshake, the reconnect, the credentials and the user's requests.
//
//   - Order. The server executes and answers requests in the order of Send. zk.Conn acts on an event before a later
//     answer is handed over. The exception is an operation unknown to the server, which answers at once, and ends the
//     connection.
//   - Credentials. After a reconnect nothing is sent until zk.Conn presents its credentials again.
//   - Answers. Each request gets exactly one answer. If the line ends first, the answer is zk.ErrNoServer for a request
//     of which nothing was sent, and zk.ErrConnectionClosed for a request that the server may have executed. When a
//     line is abandoned, its requests are given up, and a late answer still counts as a proof.
//   - Blocking. Send never blocks. Send writes only if the write can't block, see writeAtOnce; otherwise a goroutine of
//     the line writes.
//   - Malformed answers. A malformed or unexpected answer ends the line.
//   - Watches. A watch set by such a request exists on this connection alone. The event is reported to the owner, and
//     does not reach zk.Conn unless zk.Conn has a watch for the event as well.
//
// # Habits of zk.Conn
//
// A Wire, package dial and package session rest on what zk.Conn does, beyond what its documentation says. Each habit has a test with a plain
// zk.Conn, in habits_test.go if no other file is named. A version of go-zookeeper is supported if these tests pass: make zkconn.
//
// Its steps, on which session's state.go, line.go and dial's hosts.go rest:
//
//   - A connection is Next, StateConnecting, the dial, StateConnected, the handshake, StateHasSession, Connected, and at its end
//     StateDisconnected. Nothing else happens between a loss and the next dial, except that zk.Conn closes the old socket before or soon after
//     that dial: TestConnTakesItsStepsInOrder.
//   - zk.Conn waits for the event callback before its next step: TestConnWaitsForTheCallback.
//   - The callback gets every event, even if the channel is not read in time: TestConnCallsBackForEveryEvent.
//   - If Init fails, zk.Connect starts nothing: TestConnDoesNotStartWithoutServers.
//   - The lines of the log about the connection begin with the words in session's report.go: TestConnLogsItsConnection.
//   - A connection has one reader and one writer, which return before the next dial: TestConnHasOneReaderAndOneWriter.
//
// The handshake (line.go, answer.go, forgotten.go, bound.go):
//
//   - Its request is one write before the first read, with the fields in the order that claimOf reads: TestConnWritesTheHandshakeFirst.
//   - After a failed handshake, zk.Conn closes the socket and asks for the same session again, forever: TestConnAsksForItsSessionForever.
//   - The session id 0 in the answer ends the session. zk.Conn reports each of its watches, forgets id, password and zxid, does not call
//     Connected, and dials again: TestConnExpiresWithoutASessionID.
//   - The request names the zxid of the latest answer to a request of zk.Conn's, and neither of events nor of pings nor of an answer with
//     zxid 0: TestConnNamesTheZxidOfItsLatestAnswer.
//
// Frames (frames.go, request.go, answer.go, outbox.go):
//
//   - Each request is one write of one frame, with a positive xid: TestConnWritesEachFrameAtOnce.
//   - Requests and errors have the same form as the engine's own: TestRequestsAreThoseOfTheConn and TestErrorsAreThoseOfTheConn in
//     request_test.go.
//   - zk.Conn acts on a frame, and registers its watch, before it reads the next one: TestConnActsOnAFrameBeforeTheNext.
//   - A frame may arrive in pieces: TestConnTakesFramesInPieces. It may be as long as WithMaxBufferSize says:
//     TestConnReadsUpToTheMaxBufferSize.
//   - Answers to the pings of a Wire are ignored: TestConnIgnoresAnswersToForeignPings.
//
// Time (line.go, trust's contact.go and timing.go):
//
//   - zk.Conn pings every T/3 of the timeout that was granted: TestConnPingsEveryThirdOfTheTimeout.
//   - It sets a read deadline of 2T/3 once for each frame, removes the deadline behind the frame, and hangs up if it passes:
//     TestConnWaitsTwoThirdsOfTheTimeoutForAFrame.
//   - It sets a write deadline of 2T/3 for each frame: TestConnLimitsEachWrite.
//
// Requests, pauses and the end (session's session.go and close.go, dial's hosts.go):
//
//   - The requests in flight fail with the connection. Those in the queue stay for the next one: TestConnKeepsUnsentRequests.
//   - If Next asks for a pause, the queued requests fail with zk.ErrNoServer, and the dial follows a second later:
//     TestConnPausesForASecondAfterARound.
//   - Closed while Next runs, zk.Conn ends in that pause at once, and Close returns: TestConnEndsInAPause.
//   - Close sends a request to end the session. zk.Conn ends with the answer, and closes the channel of events: TestConnClosesItsSession.
//   - Close waits for the answer for a second, and then zk.Conn for the end of its connection: TestConnCloseWaitsForASecond.
//
// Credentials and watches (credentials.go, watches.go, restore.go):
//
//   - On each connection, zk.Conn presents the accepted credentials again, one by one, before all else: TestConnPresentsCredentialsFirst.
//   - An answer registers a watch as registerWatch does. After a reconnect, a setWatches names all watches and the zxid of the handshake,
//     and there is none without a watch: TestConnRegistersWatches.
//   - If the watches need several setWatches, all name that zxid: TestConnBuildsAllSetWatchesAtOnce.
//   - An event uses up the watches of core.FiredBy: TestConnForgetsWatchesThatFired.
//   - A setWatches may stay in the queue for the next connection: TestConnMayLeaveSetWatchesInItsQueue.
//
// # Limits of a Wire
//
// A Wire knows neither trust, holds and watches of a session, nor when to abandon a connection. A Wire asks its
// owner for times and reports events to the owner, through the interface owner.
//
// # Where to look
//
//   - wire.go has a Wire, its owner, and the start of a connection.
//   - line.go, frames.go have a connection from the handshake on, its deadlines and pings, and the frames read.
//   - watches.go, restore.go have the watches of zk.Conn, and their restoration after a reconnect.
//   - request.go, outbox.go, answer.go have the engine's own requests.
//   - credentials.go has the credentials, and the login over SASL within the handshake.
//   - contact.go has the requests in flight, their receivers and their times.
//   - abandon.go keeps an abandoned connection while writes are in flight.
//   - bound.go has sessions that end with their connection.
//   - forgotten.go distinguishes servers that lost transactions from servers without a quorum.
//
// # Concurrency
//
// All exported functions may be called from several goroutines. A Line has one reader and one writer at a time, like every
// net.Conn under zk.Conn. [Wire.Close] joins the goroutines of the lines. The goroutines of package dial are not joined here,
// but by [dial.Dialer.FinishUserCalls].
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
// If the user's dialer made the connection, its SetReadDeadline, SetWriteDeadline and Close may run under Wire.mu. The contract
// of net.Conn is that the first two do not block.
package wire
