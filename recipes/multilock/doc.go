// Package multilock provides InterProcessMultiLock: several locks that are acquired and released as
// one, as in Apache Curator's recipe of that name.
//
// # Order
//
// The locks are acquired in the order in which they were given, and released in reverse. Two programs
// that need the same locks in different orders can wait for each other. [NewMutexes] sorts its paths;
// with [New] the order is the caller's to keep, the same in all programs.
//
// # Guarantees
//
//   - One context bounds the whole of Acquire, not each lock. That includes the release of the locks
//     that it has got, if it fails.
//   - Acquire stops at the first failure, or when a lock that it has already got is lost, and releases
//     what it has in reverse order.
//   - The context of a [Lease] ends when that of any part does, with the same cause. The other parts
//     stand until Release.
//
// Each part has the guarantees of its own recipe: see package recipes.
//
// # Non-guarantees
//
// There is no fencing token for the whole. Each part has its own: see [Lease.Leases]. A part that is
// lost does not revoke the others, and a resource that is guarded by several parts has to check the
// token of each.
//
// # Owner
//
// The context of a lease carries the holds of all parts, so each part re-enters with it. A multilock
// has no re-entry of its own: Acquire with that context acquires each part, and these re-enter. A
// semaphore never re-enters: it takes another permit, or waits for one.
//
// # Failures
//
//	what happens                              Acquire returns                      a lease
//	ctx ends                                  the *recipes.WaitError of the lock   –
//	                                          that it was waiting for
//	a part is lost (session, znode, …)        the cause                            ends with the cause
//	the release of a part fails               –                                    Release returns it, and releases the others
//	no server answers the deletions           when ctx ends, or after one          Release returns ErrNodeNotDeleted
//	                                          operation timeout, whatever is less  after one operation timeout
//
// # Concurrency
//
// An InterProcessMultiLock is immutable and may be used by any number of goroutines.
package multilock
