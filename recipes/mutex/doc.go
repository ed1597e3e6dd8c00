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
// # Cohorts
//
// With [WithCohort] all mutexes of one client on one path share one znode. A lock that hundreds of
// goroutines of a process want is passed on among them without a request, some ten thousand times a second
// and more; without it, each of them is a contender of its own. Use it where many callers of few processes
// want the same path. Do not use it
//
//   - where the order of arrival has to hold across processes: a contender from elsewhere waits for up to
//     MaxPasses holders who came later;
//   - where the guarded resource has to tell one holder from the next by the token, or may execute a
//     write after the Release of the lease;
//   - where callers of one process rarely meet: then it saves nothing.
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
// # Many waiters
//
// Of one client, at most 500 contenders wait with a znode on one path. Further ones wait inside the
// process, in the order in which they came, and get a znode as others are granted or give up. The
// turn of a contender counts from its znode, so a contender of another client may come before them.
// Participants does not show them, and the Position in their WaitError is 0. See
// [recipes.WithMaxSessionBytes] for what bounds a client as a whole.
//
// # Concurrency
//
// An InterProcessMutex is immutable and may be used by any number of goroutines.
// A waiter watches the znode ahead and, if it is the next or has waited for 3 s, its own. While it waits it sends
// no other requests beside those that keep its session.
package mutex
