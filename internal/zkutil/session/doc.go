// Package session keeps one ZooKeeper session, and knows until when it is alive.
//
// A [Session] owns or adopts a zk.Conn. It bounds each request by a context, shares watches, deletes
// what its calls leave behind, and ends its holds before another client can get theirs.
//
// # What proves that a session is alive
//
// Only a write of ours that the quorum has committed. Pings, reads and sync prove nothing, because a
// server that is cut off from its quorum goes on answering them for seconds after the others have
// expired the session. So while something is held, the session commits an empty
// transaction every T/6, where T is the session timeout. It trusts itself until 2T/3 after the
// latest committed write was sent. liveness.horizon says why that is early enough, and
// liveness.decide when what is done.
//
// A session that waits commits nothing. It proves itself when its turn has come: see Session.Grant. What a session was not
// told it finds out by reads, once in T, and if it only waits, rarely by a transaction: see reread.go.
//
// # Concurrency
//
// Session.mu guards the state, the holds and the watches. Under it run only short functions of this
// package: no request to zk.Conn (its State and SessionID may be asked), no I/O, no function of the
// user. The event callback of zk.Conn runs inside zk.Conn's locks, so it takes Session.mu and never
// blocks; so does what the wire tells of events. The session may ask its wire under Session.mu: package
// wire has the order of locks. Locks of Callbacks, Leftovers and the budget are taken last; listings.mu
// is taken before Session.mu.
//
// A function whose name ends in Locked is called under Session.mu. So are all methods of liveness,
// and the conditions of awaitCondition.
//
// Every goroutine is counted by the session: tasks, requests in zk.Conn, the tasks of the wire,
// zk.Conn itself, campaigns, and callbacks of the user. Close joins them in the order of lifecycle.
package session
