// Package semaphore provides InterProcessSemaphore, a number of permits shared by processes on several
// machines, with the semantics and the wire format of Apache Curator's InterProcessSemaphoreV2, and
// InterProcessSemaphoreMutex, which has one permit. Go and Java services can share a path.
//
// # Order
//
// Permits are granted in the order of the requests. A request for several permits takes all of them
// together, and until then none. While the request waits for permits, neither a smaller request nor a
// try overtakes. So with a limit of 3, and 2 permits held, a request that waits for 3 permits keeps the
// third permit free.
//
// # The limit
//
// The limit is a number that is either the same in all processes or shared in a znode (see [WithSharedLimit] and
// [SetSharedLimit]). A request is subject to the limit at the time at which it takes its permits. A request for more
// permits than a shared limit lets smaller requests pass until the limit is raised.
//
// # No owner
//
// Permits do not re-enter: Acquire with the context of a lease takes another permit, or waits for
// another permit. Any goroutine may release a permit. The context of a lease ends with the lease.
//
// # Guarantees, limits, failures
//
// See package recipes. In short:
//
//   - No permit is granted beyond the limit at the time of the grant. The permits with the lowest numbers count. A
//     lower limit takes no permit back. A lease's context ends before its permit can be granted again.
//   - A request has all of its permits, or none. If one of several permits is lost later, the others stay
//     valid.
//   - A released permit wakes only the first waiter. A waiter for several permits wakes for each released permit until
//     enough are free.
//   - The fencing token of a permit is its czxid, which the permits created by one transaction share. Permits are held
//     together, so a resource can't refuse a lower token: it can only refuse the token of a request known to be over.
//
// If a request loses its turn while it is first (its session is lost, or a third party deletes its
// znode), it queues again at the tail. Under StandardErrorPolicy, so does a request that is first when
// the connection is lost, unless the servers gave it its permits by then.
//
// Locks of different recipes on one path do not see each other. So the first call on each value lists
// the path, and returns ErrOtherLayout if the path has contenders of another kind.
//
// # Concurrency
//
// Semaphores are immutable and may be used by any number of goroutines. A waiter behind other waiters watches the znode
// ahead and, if it is next in line or waited for 3 s, its own znode. It sends no requests other than those that keep
// its session alive.
//
// # Source
//
// The recipe is Curator's. A contender waits for its turn on a mutex in path/locks ("_c_<uuid>-lock-<number>"), and
// takes its permits in path/leases ("_c_<uuid>-lease-<number>"). This package differs in three respects:
//
//   - One transaction creates all permits of a request and gives up the turn. For more than 999 permits, or for long IDs,
//     further transactions precede it. Curator takes several permits one by one and lets other requests in between, so two
//     clients can hold a part each and wait for the rest. A Java client can wait like that behind a request of this
//     package, too, until one of the two gives up: let Java take one permit at a time.
//   - Curator counts the children of leases, with any name, and relies on the mutex. Here the lowest numbers decide,
//     and children with other names are ignored.
//   - Curator creates the znode of a permit before it knows whether a permit is free. Here the check is first.
package semaphore
