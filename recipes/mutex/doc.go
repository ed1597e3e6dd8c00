// Package mutex provides InterProcessMutex, a lock that works across processes and machines, re-entrant and revocable, with the
// semantics and the wire format of the Apache Curator recipe of the same name. Go and Java services can share one path.
//
// # Owner
//
// Go has no thread identity, so the call tree is the owner. The context of a [recipes.Lease] carries the hold. Acquire
// with the lease's context, or with a derived context, re-enters without a request to ZooKeeper. Acquire with any other
// context queues as another contender, even in the same process and with the same mutex value.
//
//	lease, err := m.Acquire(ctx)               // holds the lock
//	inner, err := m.Acquire(lease.Context())   // the same hold once more
//	other, err := m.Acquire(ctx)               // waits for lease, so this call tree blocks itself
//
// Every goroutine that gets the lease's context shares ownership. After the end of the hold, Acquire with the lease's context
// returns the cause of the end.
//
// # Cohorts
//
// With [WithCohort] all mutexes of one client on one path share a znode. A lock wanted by hundreds of
// goroutines of a process is passed on among the goroutines without a request, some ten thousand times a second
// and more; without a cohort, each goroutine is a contender of its own. Use a cohort where many callers of few
// processes want the same path. Do not use a cohort
//
//   - where the order of arrival has to hold across processes. A contender from elsewhere waits for up to MaxPasses
//     holders who arrived later;
//   - where the guarded resource has to distinguish successive holders by the token, or may execute a write
//     after the Release of the lease;
//   - where callers of one process rarely meet. A cohort then saves nothing.
//
// # Guarantees, non-guarantees, failures
//
// See package recipes. In short, the lock has one holder at a time, in the server's order. A holder's context ends
// before the next contender is granted the lock. The fencing token covers the cases in which no client can find out
// about a loss that early.
//
// An Acquire, TryAcquire or Do that ends without the lock returns a [recipes.WaitError], which matches
// ErrNotAcquired. A deadline inside Do's function is no WaitError.
//
// # A bound on a hold
//
// With [WithMaxHold] the context of a lease ends after a time, with ErrMaxHold. That is a request to stop, and exclusion does
// not depend on whether the work follows. The znode exists until the lease is released, or the function of Do returns. A lock
// that lets others in after a time, whether the holder stopped or not, has two holders whenever a holder is slow. If the work
// hangs for ever, end its process, or delete the znode and let the fencing token decide.
//
// # Many waiters
//
// At most 500 contenders of a client wait with a znode on the same path. Further contenders wait inside the process, in the
// order of arrival, and get a znode as others are granted or give up. The turn of a contender counts from the znode, so a
// contender of another client may be first. Participants does not show contenders without a znode, and the Position in their
// WaitError is 0. [recipes.WithMaxSessionBytes] describes the bound of a client as a whole.
//
// # Concurrency
//
// An InterProcessMutex is immutable and may be used by any number of goroutines. A waiter watches the znode ahead and,
// if the waiter is the next or waited for 3 s, its own. While waiting, it sends no other requests, except to keep the
// session alive.
package mutex
