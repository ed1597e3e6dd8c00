// Package cohort lets many callers of one session share one contender of a queue. The hold of the contender has parts, which
// the callers get one after the other.
//
// # Promises
//
//   - Bounded passing: while a contender from elsewhere waits, the cohort gives the lock up after Bounds.MaxPasses
//     passes, or at the first release after Bounds.MaxTenure. While the cohort can't know whether such a contender waits, the
//     same bounds count.
//   - Inside, callers get the lock in the order of their arrival, and a pass sends no request.
//   - A loss ends the tenure with all its parts. Callers that wait inside stay, and a new contender joins the queue for them.
//   - An Acquire whose context ended returns no hold.
//
// # Where to look
//
// cohort.go has the callers that wait or try, and the contender that waits in the queue for them. tenure.next in tenure.go
// decides when a tenure ends; tenure.attend watches for contenders from elsewhere.
//
// # Concurrency
//
// All methods of a Cohort may be called concurrently. One mutex protects a cohort and its tenure. Code that holds that mutex
// may lock Session.mu, never the other way round, and sends no request and runs no function of the user.
package cohort
