// Package inspect shows locks and elections from outside. It finds which recipe uses a path, who holds and who waits,
// since when and with which fencing token. It joins no queue and writes nothing.
//
// # Guarantees
//
//   - [Read], [Peek] and [Walk] create no znode, set no watch, and need no permission but READ.
//   - A call has at most 16 requests in flight.
//   - Contenders are in the order of the queue, and each appears once.
//   - A contender that leaves during the call is left out.
//
// # Limits
//
// A [Queue] is a snapshot, possibly outdated by the time you read it, and is read from a single server, which may lag
// behind. Holds reflects the znodes. The znode of a killed process exists until the session expires, and a contender
// that just became first may not know yet.
//
// The names of the znodes decide the kind. On the wire, Curator's LeaderSelector and kazoo's Lock are mutexes. The
// limit of a semaphore is not known. A contender that created its permit's znode, but waits because too many permits
// are held, differs from the holders in still holding the semaphore's own lock, which it releases when its permit is
// granted. While one session has several contenders in a semaphore, its newest permit may appear to wait, in place of its
// contender that is first in line, until another contender is first.
//
// # Failures
//
//	zk.ErrNoNode               the path does not exist
//	zk.ErrNoAuth               an ACL forbids listing the path; Walk continues with other paths
//	recipes.ErrInvalidArgument the client is nil, or the path is invalid
//	recipes.ErrClosed          the client was closed
//	the error of ctx           ctx ended, possibly without a connection
//
// Each error is in a *recipes.OpError. A contender whose znode is not readable has no ID.
//
// # Concurrency
//
// All functions may be called concurrently. A function joins its goroutines before it returns, Walk
// before it yields.
package inspect
