// Package session keeps one ZooKeeper session alive, and knows until when the servers keep the session.
//
// A [Session] owns a zk.Conn. A session bounds each request by a context, shares watches, deletes
// leftover znodes, and ends its holds before another client can be granted the same locks.
//
// # What proves that a session is alive
//
// Only an own write committed by the quorum proves a session. Pings, reads and sync prove nothing, because a
// server without its quorum continues to answer them for seconds after the other servers expired the
// session. So, while the session has holds, the session commits an empty transaction every T/6, where T is the
// session timeout. Trust lasts until 2T/3 after the latest committed write was sent. Package core explains why
// 2T/3 is early enough, and decides when heartbeats, audits and reads are due, what is granted, and what ends a hold.
//
// A session without holds commits nothing, and proves itself when a contender is to be granted: see
// Session.Grant. To catch lost notifications, a session re-reads all its watches once per T. Rarely, a waiting
// session also commits a transaction. See startReadsLocked.
//
// # Files, in reading order
//
//   - session.go, state.go: a Session, its connection and its states. open.go: a session that is opened before any server is
//     there.
//   - gate.go: a request, from the gate to its answer.
//   - create.go, read.go, remove.go: the requests of contenders. together.go: those of several contenders in one transaction,
//     in exchange.go also with the end of a hold.
//   - watch.go: watches, from the first user to their removal.
//   - grant.go, hold.go, limit.go: from a claim to a hold, its entries, its limit, and their ends.
//   - keeper.go: heartbeats, audits and reads, and the goroutine that sends them.
//   - report.go: what the log, the traces and Health show. tasks.go: the session's own goroutines.
//   - close.go: the end.
//
// # Parts
//
// A Session consists of parts, each with the fields and methods of one concern: lifecycle, gate, report, link,
// keeper, proofs, holds, watches. A part points back to its session and shares Session.mu,
// because a grant, a loss, a reconnect and the end of all holds concern several parts in one step.
//
// # Concurrency
//
// Session.mu guards the state, the holds and the watches. Only short functions of this package run under
// Session.mu: no request to zk.Conn (its State and SessionID may be called), no I/O, no user code. The event
// callback of zk.Conn runs inside zk.Conn's locks and takes Session.mu, so the callback must not block; the same
// applies to the wire's event callbacks. The session may call its wire under Session.mu: package wire has the
// order of its locks. The order of all: the locks around the callback of zk.Conn, those of a selector and then of its
// candidate, the lock of a cohort, holderReads.mu of a queue, the lock of a basket, listings.mu, gate.testMu → Session.mu → the locks of the wire and the
// dialer, of package ops, and of the clock → those of packages callbacks, connstate, departures, leftovers,
// logs and trace, and of the budget.
//
// A function whose name ends in Locked is called under Session.mu. So are all methods of core.Session and core.Hold, and the
// conditions of awaitCondition.
//
// Every goroutine is counted by the session: tasks, requests in zk.Conn, the tasks of the wire, zk.Conn itself,
// campaigns, and callbacks of the user. Close joins them in the order of lifecycle. See close.go.
package session
