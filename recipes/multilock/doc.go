// Package multilock provides InterProcessMultiLock: several locks that are acquired and released
// together, as in Apache Curator's recipe of the same name.
//
// # Order
//
// The locks are acquired in the order of the arguments, and released in reverse. Two programs that need
// the same locks in different orders can deadlock. [NewMutexes] sorts its paths; with [New], the caller
// must use the same order in all programs.
//
// # One transaction
//
// Mutexes, read locks and write locks of one client on different paths are acquired and released together by one transaction each: ten free
// locks take the time of one. If another contender holds one of the locks, the znodes behind it, in the order of the multilock, are deleted at
// once, the locks before it are kept, and the multilock waits for it. Then another transaction creates the rest. So it waits only while it holds
// earlier locks, as a multilock does that acquires its locks one after the other, and is as free of deadlocks beside such multilocks, in Java
// too. Three things differ:
//
//   - The parts that one transaction has created have equal tokens. On each path tokens still grow from holder to holder.
//   - The TryAcquire of another client may fail because of a znode that is about to be deleted, because the multilock has to wait for
//     an earlier lock. That lasts for one commit.
//   - A process that pauses in between keeps others waiting for the locks behind, until it continues or its session expires.
//
// The locks are acquired one after the other, as before, if one of them is a semaphore, has a cohort, is of another client or package, or is
// held by the context already. The same is true for more than 1,000 locks, on ClickHouse Keeper, and after a transaction that failed.
// The release is one transaction in all these cases, for each client.
//
// # Guarantees
//
//   - One context bounds the whole of Acquire, not each lock. If Acquire fails, this includes the release
//     of the locks acquired so far.
//   - Acquire stops at the first failure, or when a lock acquired so far is lost, and releases its locks in
//     reverse order.
//   - The context of a [Lease] ends when the context of any part ends, with the same cause. The other
//     parts stay held until Release.
//
// Each part has the guarantees of its own recipe: see package recipes.
//
// # Limits
//
// A multilock has no fencing token. Each part has its own token: see [Lease.Leases]. The loss of a part
// does not revoke the others, so a resource guarded by several parts has to check the token of each.
//
// # Owner
//
// The context of a lease carries the holds of all parts, so each part re-enters with it. A multilock
// does not re-enter as a whole: Acquire with the context of a lease acquires each part, and the parts
// re-enter. A semaphore never re-enters: it takes another permit, or waits for another permit.
//
// # Failures
//
//	event                                     Acquire returns                      a lease
//	ctx ends                                  the *recipes.WaitError of the lock   –
//	                                          being waited for
//	a part is lost (session, znode, …)        the cause                            ends with the cause
//	the release of a part fails               –                                    Release returns the error, and releases the
//	                                                                               others
//	no server answers the deletions           when ctx ends, or after one          Release returns ErrNodeNotDeleted
//	                                          operation timeout, whichever is      after one operation timeout; Do
//	                                          first                                returns no error for the deletions
//
// # Concurrency
//
// An InterProcessMultiLock is immutable and may be used by any number of goroutines.
package multilock
