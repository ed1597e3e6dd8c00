// Package rwlock provides InterProcessReadWriteLock, a lock held either by many readers together or by one writer
// alone, with the semantics and the wire format of Apache Curator's recipe of the same name. Go and Java services can
// share a path. Both locks are re-entrant and revocable, like the lock of package mutex.
//
// # Queue order
//
// Contenders queue in the order of the numbers that the server assigned. A writer waits for all
// contenders ahead, a reader for the writers ahead. So no reader overtakes a writer, and no reader
// waits for a later writer.
//
// # Owner
//
// As in package mutex, the context of a lease carries the hold: Acquire of the same lock re-enters with
// the lease's context or a context derived from it. With any other context, Acquire queues like
// everyone else. A reader that asks for the write lock with any other context waits for itself, until
// the context ends.
//
// # Downgrading
//
// The holder of the write lock acquires the read lock with the context of its lease, without waiting:
//
//	writing, err := l.WriteLock().Acquire(ctx)
//	reading, err := l.ReadLock().Acquire(writing.Context())
//	err = writing.Release()  // other readers may enter; a writer that was waiting stays out
//
// The read lock then has the writer's number and fencing token: contenders that queued behind the writer stay behind
// the reader. The two leases may be released in either order. While the writer holds the lock, the write lock
// re-enters with the context of either lease.
//
// # Upgrading
//
// Upgrading is not possible: with the context of a held read lock, the write lock returns [ErrUpgrade]
// at once.
//
// # Guarantees, limits, failures
//
// See package recipes. In short:
//
//   - A writer is alone. Its context ends before any other contender is granted the lock. A reader's
//     context ends before any writer is granted the lock.
//   - A writer's fencing token is higher than those of all earlier holders. Readers that hold the lock
//     together have different tokens, each lower than the token of every later writer.
//   - The release of a writer wakes only the readers that may then enter. A writer wakes once for each contender ahead
//     that it watched, at most once for each reader that holds the lock.
//
// Locks of different recipes on one path do not see each other. So the first call on each value lists
// the path, and returns ErrOtherLayout if the path has contenders of another kind. The mutex makes no
// such check.
//
// # Concurrency
//
// An InterProcessReadWriteLock is immutable, and so are its locks. Any number of goroutines may use them. A waiter
// watches the contender for which it waits and, if it is next in line or waited for 3 s, its own znode. While it waits,
// it sends no requests other than those that keep its session alive.
//
// # Source
//
// The recipe is Curator's, and so are the names of the znodes: "_c_<uuid>-__WRIT__<number>" and
// "_c_<uuid>-__READ__<number>". This package differs in three respects. A reader watches the nearest
// writer ahead; Curator's watches the first writer, and so also wakes when another writer is next.
// Children with other names are ignored; Curator lets them compete. A read lock under the write lock is
// granted only when a listing of the queue has shown both znodes together.
package rwlock
