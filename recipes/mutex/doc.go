// Package mutex provides InterProcessMutex: a lock that works across processes and
// machines, re-entrant and revocable, with the semantics and the wire format of
// Apache Curator's recipe of that name. Go and Java services can share one path.
//
// # Owner
//
// Go has no thread identity, so the call tree is the owner: the context of a
// [recipes.Lease] carries the hold. Acquire with that context, or one derived from
// it, counts up without a request to ZooKeeper; any other context is a contender of
// its own, in the same process and with the same mutex value too.
//
//	lease, err := m.Acquire(ctx)               // holds the lock
//	inner, err := m.Acquire(lease.Context())   // the same hold once more
//	other, err := m.Acquire(ctx)               // waits for lease: a deadlock on oneself
//
// Every goroutine that is given the lease's context shares ownership. Once the hold
// has ended such a context never acquires again: Acquire returns why it ended.
//
// # Guarantees, non-guarantees, failures
//
// See package recipes. In short: one holder at a time in the server's order, told of
// a loss before the next one can be granted, and a fencing token for the cases in
// which no client can be told in time.
//
// An Acquire, TryAcquire or Do whose context ended before it has acquired the lock returns a
// [recipes.WaitError], which no deadline inside Do's function is.
//
// # Concurrency
//
// An InterProcessMutex is immutable and may be used by any number of goroutines.
// Waiting costs no request: a waiter watches its own znode and the one ahead.
package mutex
