// Package zkutil is the one engine under every recipe of this library.
//
// A [Session] is one ZooKeeper session: it owns or adopts a zk.Conn, bounds each
// call by a context, tracks how long the session is known to be alive, and tells
// its holds when that ends. A [Queue] is the ephemeral-sequential queue of
// Curator's locks: join at the tail, watch the one contender ahead, take the
// [Hold] when nobody is ahead any more. Recipes are thin: a mutex is a queue, a
// latch is a queue joined in the background.
//
// # What proves that a session is alive
//
// Only a write of ours that the quorum committed. Pings, reads and sync are
// answered by a server that is cut off from its quorum, for seconds after the
// others have expired the session. So while something is held or awaited the
// session commits an empty transaction every T/6 (T is the session timeout), and
// trusts itself until 2T/3 after the send time of the last committed one. Why that is
// early enough is said at Session.horizon.
//
// # Concurrency
//
// Session.mu protects everything a session, its holds, places and watches share;
// it is never held over a call to zk.Conn, over I/O, or over user code. The event
// callback of zk.Conn runs inside its locks, so it only takes Session.mu and
// closes channels. Every goroutine is counted by the session: its own tasks, the
// calls in zk.Conn, the tasks of the wire, zk.Conn's own, and the user's callbacks.
// Close joins them in that order.
package zkutil
