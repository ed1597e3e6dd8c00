// Package selector provides LeaderSelector: one participant in the election of a leader,
// and the work that it does while it leads, with the semantics and the wire format of
// Apache Curator's recipe of that name. Go and Java services can take part in one election.
//
// The work is a function. It is called when the selector is first in the queue of its
// path, and the selector leads until it returns:
//
//	take := func(ctx context.Context, term *recipes.Lease) error {
//		return bill(ctx, term.FencingToken()) // returns when ctx ends
//	}
//	election, err := selector.New(client, "/services/billing", take,
//		selector.WithID("billing-7"), selector.WithAutoRequeue())
//	if err != nil {
//		return err
//	}
//	return election.Run(ctx) // until ctx ends and the next selector can lead
//
// With [WithAutoRequeue] the selector joins again at the tail after each term, which suits services.
// Without it, the selector leaves the election after one term, until Requeue. Run returns then, with
// the outcome of the term.
//
// Take a selector if there is work to do while leading. If other parts of the process ask who leads,
// take package latch. docs/elections.md compares both with other tools.
//
// # Guarantees
//
// Those of package recipes for each term, which is a [recipes.Lease], and:
//
//  1. At most one selector of a path leads at any instant, as long as clocks run at about
//     the same rate. If a process was paused and does not know it, fencing decides: tokens
//     of successive terms strictly grow.
//  2. A term that ends without a loss, by Close, InterruptLeadership, Release, or because
//     the function has returned, ends in this order: the context ends, the function
//     returns, the znode is deleted. No other selector can lead before the last step. After
//     the grace of [WithStepDownGrace] Close returns an error, and the znode stays until the
//     function has returned.
//  3. Calls of the function never overlap. A selector that waits keeps its position at a
//     disconnection.
//  4. Errors and panics of the function are never lost: they go to the error handler, or to
//     the log, which is slog.Default without [recipes.WithLogger], or Run returns them. An
//     error is ignored only if all of it reports the end of the term's context. A panic is
//     never ignored.
//  5. After an error the automatic requeue waits, longer each time. After a term of less than
//     a second it waits too: see [WithRequeueBackoff]. After a longer success it does not
//     wait.
//  6. Under Run the context of a term has the values of Run's context, and ends with the
//     cause of that context when that ends.
//
// # Non-guarantees
//
// After a loss, a successor can lead while our function still runs. The term's context ends before
// the server lets another selector lead, but that one does not wait for our function, and a process
// that was paused learns of its loss when it runs again. Send the token to the resource that the
// leader writes to, and let that refuse lower tokens: [recipes.Lease.FencingToken] shows how in SQL,
// and [recipes.Lease.Check] guards data in ZooKeeper.
//
// The function is not called for a term that is over before the call could begin.
//
// # Failures
//
//	what happens                           to a selector that leads         to one that waits
//	connection lost, session survives      goes on leading                  keeps its position
//	  the same, StandardErrorPolicy        term ends with ErrSuspended      keeps its position
//	no proof of life for 2/3 of T          term ends with ErrSessionLost    keeps its position
//	session expired                        term ends with ErrSessionLost    joins again at the tail
//	own znode deleted, parent wiped        term ends with ErrNodeDeleted    joins again at the tail
//	the function returns nil               term ends; requeued at once, or  –
//	                                       after a pause if within 1 s
//	the function fails or panics           term ends; reported, and         –
//	                                       requeued after a pause
//	Run's context ends                     term ends with its cause         leaves
//	the server refuses (zk.ErrNoAuth)      –                                leaves, and joins again after
//	                                                                        a pause: reported once
//	sequence numbers run out               –                                gives up: reported, and
//	                                                                        returned by Run
//	InterruptLeadership, Release           term ends with ErrReleased       –
//	Client.Close                           term ends with ErrClosed         leaves
//
// T is the session timeout. "Requeued" applies to automatic requeue only, which also follows a term
// that was lost. A selector that has given up joins again after Requeue or AutoRequeue.
//
// # Concurrency
//
// All methods may be called from any goroutine, also from the function. Inside the function and the
// error handler of this selector, Close asks for the step-down and returns at once. In any other place
// Close and Run return when the function has returned, the znode is gone, and all goroutines of the
// selector have ended. So a leader's function may take part in an inner election: the inner work has
// ended when Close or Run of the inner selector returns.
package selector
