// Package mutex provides InterProcessMutex: a lock that works across processes and
// machines, re-entrant and revocable, with the semantics and the wire format of
// Apache Curator's recipe of that name. Go and Java services can share one path.
//
// # Owner
//
// Go has no thread identity, so the call tree is the owner: the context of a [recipes.Lease] carries
// the hold. Acquire with that context, or with one derived from it, re-enters without a request to
// ZooKeeper. Acquire with any other context makes another contender, also in the same process and
// with the same mutex value.
//
//	lease, err := m.Acquire(ctx)               // holds the lock
//	inner, err := m.Acquire(lease.Context())   // the same hold once more
//	other, err := m.Acquire(ctx)               // waits for lease, so this call tree blocks itself
//
// Every goroutine that gets the lease's context shares ownership. When the hold has ended, Acquire
// with such a context returns the cause of the end.
//
// # Guarantees, non-guarantees, failures
//
// See package recipes. In short: there is one holder at a time, in the server's order. A holder's
// context ends before the next contender is granted the lock. For the cases in which no client can
// know of its loss before that, there is the fencing token.
//
// An Acquire, TryAcquire or Do whose context has ended before it has acquired the lock returns a
// [recipes.WaitError]. A deadline inside Do's function is no WaitError.
//
// # Concurrency
//
// An InterProcessMutex is immutable and may be used by any number of goroutines.
// A waiter watches its own znode and the one ahead. While it waits it sends no requests beside the
// heartbeats of its session.
package mutex
