// Package semaphore provides InterProcessSemaphore: a number of permits that processes on several
// machines share, with the semantics and the wire format of Apache Curator's InterProcessSemaphoreV2, and
// InterProcessSemaphoreMutex, which has one permit. Go and Java services can share one path.
//
// # Order
//
// Permits are granted in the order in which the requests came. A request for several permits takes all
// of them at once, and until then it has none. While it waits, nobody passes it: neither a smaller
// request nor a try. So with the limit 3, and 2 permits held, one that waits for 3 keeps the third one
// free.
//
// # The limit
//
// is a number, the same in all processes, or shared in a znode: see [WithSharedLimit] and
// [SetSharedLimit]. Each request goes by the limit at the time at which it takes its permits.
//
// # No owner
//
// A permit is not re-entered: Acquire with the context of a lease takes another permit, or waits for
// one. It may be released by any goroutine. The context of a lease ends with the lease.
//
// # Guarantees, non-guarantees, failures
//
// See package recipes. In short:
//
//   - No permit is granted beyond the limit at that time: those with the lowest numbers count. A
//     lower limit takes none back. A lease's context ends before its permit can be granted again.
//   - A request has all of its permits, or none. If one of several is lost later, the others stand.
//   - A permit that is given back wakes the first of those who wait, and nobody else. One that waits
//     for several permits is woken by each that is given back until it has enough.
//   - The fencing token of a permit is its czxid. Permits are held together, so a resource can't refuse
//     a lower token: it can only refuse the token of a permit that it knows to be over.
//
// If a request loses its turn while it is first (its session is lost, or its znode is deleted by somebody
// else), it waits again as the last. Under StandardErrorPolicy, so does one that is first when the
// connection is lost.
//
// Locks of different recipes on one path do not see each other. So the first call of each value lists
// the path, and returns ErrOtherLayout if there are contenders of another kind.
//
// # Concurrency
//
// Semaphores are immutable and may be used by any number of goroutines. One that waits behind others
// watches the znode ahead and, if it is the next or has waited for 3 s, its own. It sends no other requests beside
// those that keep its session.
//
// # Source
//
// The recipe is Curator's: a contender waits for its turn on a mutex in path/locks
// ("_c_<uuid>-lock-<number>"), and takes its permits in path/leases ("_c_<uuid>-lease-<number>"). Three
// things differ:
//
//   - Curator takes several permits one by one and lets others in between, so two clients can hold a
//     part each and wait for the rest. A Java client can wait like that behind one of ours, too, until
//     one of them gives up: let Java take one permit at a time.
//   - Curator counts the children of leases, whatever they are, and relies on the mutex. Here the lowest
//     numbers decide, and children of other names are ignored.
//   - Curator creates the znode of a permit before it knows that there is room. Here that comes
//     afterwards.
package semaphore
