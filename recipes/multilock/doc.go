// Package multilock provides InterProcessMultiLock: several locks that are acquired and released
// together, as in Apache Curator's recipe of the same name.
//
// # Order
//
// The locks are acquired in the order of the arguments, and released in reverse. Two programs that need
// the same locks in different orders can deadlock. [NewMutexes] sorts its paths; with [New], the caller
// must use the same order in all programs.
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
