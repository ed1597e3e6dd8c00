// Package rwlock provides InterProcessReadWriteLock: a lock that many readers hold together, or one
// writer alone, with the semantics and the wire format of Apache Curator's recipe of that name. Go and
// Java services can share one path. Both locks are re-entrant and revocable, as that of package mutex.
//
// # Who waits for whom
//
// Contenders queue in the order in which the server has numbered them. A writer waits for all contenders
// ahead, a reader for the writers ahead. So no reader overtakes a writer, and no reader waits for a
// writer that has come later.
//
// # Owner
//
// As in package mutex, the context of a lease carries the hold: Acquire of the same lock with that
// context, or with one derived from it, re-enters. Any other context is another contender. A reader that
// asks for the write lock with any other context waits for itself, until that context ends.
//
// # Downgrading
//
// The holder of the write lock acquires the read lock with the context of its lease, without a wait:
//
//	writing, err := l.WriteLock().Acquire(ctx)
//	reading, err := l.ReadLock().Acquire(writing.Context())
//	err = writing.Release()  // other readers may come; a writer that was waiting stays out
//
// The read lock then has the number of the writer, and its fencing token: whoever has queued behind the
// writer stays behind the reader. The two leases may be released in either order. As long as the writer
// holds the lock, the write lock re-enters with the context of either lease.
//
// # Upgrading
//
// is not possible: with the context of a read lock that stands, the write lock returns [ErrUpgrade] at
// once.
//
// # Guarantees, non-guarantees, failures
//
// See package recipes. In short:
//
//   - A writer is alone. Its context ends before any other contender is granted, and a reader's before
//     a writer is.
//   - The fencing token of a writer is higher than those of all holders before it. Readers that hold the
//     lock together have different tokens; each is lower than that of every later writer.
//   - The release of a writer wakes the readers that it admits and nobody else. A writer is woken once
//     for each contender ahead that it has watched: at most once for each reader that holds the lock.
//
// Locks of different recipes on one path do not see each other. So the first call of each value lists
// the path, and returns ErrOtherLayout if there are contenders of another kind. The mutex has no such
// check.
//
// # Concurrency
//
// An InterProcessReadWriteLock is immutable, and so are its locks. They may be used by any number of
// goroutines. A waiter watches the znode that it waits for and, if it is the next or has waited for 3 s, its own. While it
// waits it sends no other requests beside those that keep its session.
//
// # Source
//
// The recipe is Curator's, and so are the names of the znodes: "_c_<uuid>-__WRIT__<number>" and
// "_c_<uuid>-__READ__<number>". Three things differ. A reader watches the nearest writer ahead. Curator's
// watches the first one, so it also wakes when another writer is next. Children of other names are
// ignored; Curator lets them compete. A read lock under the write lock is granted only when the queue
// has shown both znodes at once.
package rwlock
