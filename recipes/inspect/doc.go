// Package inspect shows locks and elections from outside: which recipe uses a path, who holds and
// who waits, since when and with which fencing token. It takes no part in any queue and writes
// nothing.
//
// # Guarantees
//
//   - [Read] and [Walk] make no znode, set no watch, and need no permission but READ.
//   - At most 16 requests of one call are in flight at a time.
//   - Contenders are in the order of the queue, and each is there once.
//   - A contender that leaves meanwhile is left out.
//
// # Non-guarantees
//
// A [Queue] is a snapshot, which may be outdated when it is read, and is read from a single server,
// which may be behind. Holds is what the znodes say. A holder whose process was killed has its znode
// until its session has expired; a contender that is first may not know it yet.
//
// The recipe is told by the names of the znodes. Curator's LeaderSelector is a mutex on the wire, and
// so is kazoo's Lock. Of a semaphore the limit is not known. A contender that has made the znode of its
// permit, and waits because there are too many, is told from the holders by its place in the
// semaphore's own lock, which it gives up with the grant. While one session has several contenders in
// a semaphore, one of them may appear to wait for a moment after it was granted.
//
// # Failures
//
//	zk.ErrNoNode               the path does not exist
//	zk.ErrNoAuth               an ACL forbids to list the path; Walk continues with the others
//	recipes.ErrInvalidArgument a nil client, an invalid path
//	recipes.ErrClosed          the client was closed
//	the error of ctx           ctx has ended, also while there was no connection
//
// Each is in a *recipes.OpError. A contender whose znode may not be read has no ID.
//
// # Concurrency
//
// All functions may be called concurrently. Their goroutines end before they return; those of Walk
// before it yields.
package inspect
