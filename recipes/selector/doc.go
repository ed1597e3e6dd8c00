// Package selector provides LeaderSelector: one participant in the election of a leader,
// and the work that it does while it leads, with the semantics and the wire format of
// Apache Curator's recipe of that name. Go and Java services can stand in one election.
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
//	return election.Run(ctx) // until ctx ends; then it hands over
//
// With [WithAutoRequeue] it stands again at the tail after each term, as services want it.
// Without, it leaves the election after one term, until Requeue; Run returns then, with the
// outcome of the term.
//
// Take a selector where there is work to do while leading. Where other parts of the process
// ask who leads, package latch answers them. docs/elections.md compares both with other
// tools.
//
// # Guarantees
//
// Those of package recipes for each term, which is a [recipes.Lease], and:
//
//  1. At most one selector of a path leads at any instant, as long as clocks run at about
//     the same rate. Where a process pauses and can't know, fencing decides: tokens of
//     successive terms strictly grow.
//  2. A term that ends without a loss, by Close, InterruptLeadership, Release, or because
//     the function has returned, ends in this order: the context ends, the function
//     returns, the znode is deleted. Nobody else can lead before the last step. After the
//     grace of [WithStepDownGrace] Close returns an error, and the znode stays until the
//     function has returned.
//  3. Calls of the function never overlap. One that waits for its turn is not thrown out by a
//     disconnection.
//  4. Errors and panics of the function are never swallowed: they go to the error handler, or
//     to the log, which is slog.Default unless [recipes.WithLogger] says otherwise, or Run
//     returns them. An error is ignored only if all of it reports the end of the term's
//     context; a panic never is.
//  5. After an error the automatic requeue waits, longer each time, and after a term of less
//     than a second it waits too: see [WithRequeueBackoff]. After a longer success it does
//     not.
//  6. Under Run the context of a term has the values of Run's context, and ends with its
//     cause when that ends.
//
// # Non-guarantees
//
// After a loss nobody can hold back a successor. The term's context ends before the server
// lets another one lead, but that one does not wait for our function, and a process that
// was paused learns of its loss when it runs again. Give the token to what the leader
// writes to, and have it refuse lower ones: [recipes.Lease.FencingToken] shows how in SQL,
// and [recipes.Lease.Check] guards data in ZooKeeper.
//
// The function is not called for a term that is over before it could begin.
//
// # Failures
//
//	what happens                           to a selector that leads         to one that waits
//	connection lost, session survives      leads on                         keeps its place
//	  the same, StandardErrorPolicy        term ends with ErrSuspended      keeps its place
//	no proof of life for 2/3 of T          term ends with ErrSessionLost    keeps its place
//	session expired                        term ends with ErrSessionLost    joins again at the tail
//	own znode deleted, parent wiped        term ends with ErrNodeDeleted    joins again at the tail
//	the function returns nil               leads no more; requeued at once, –
//	                                       or after a pause if within 1 s
//	the function fails or panics           leads no more; reported, and     –
//	                                       requeued after a pause
//	Run's context ends                     term ends with its cause         leaves
//	the server refuses (zk.ErrNoAuth)      –                                leaves, and joins again after
//	                                                                        a pause: reported once
//	sequence numbers run out               –                                gives up: reported, and
//	                                                                        returned by Run
//	InterruptLeadership, Release           term ends with ErrReleased       –
//	Client.Close                           term ends with ErrClosed         leaves
//
// T is the session timeout. "Requeued" holds with automatic requeue, and after the end of a
// term by a loss too. A selector that has given up stands again after Requeue or
// AutoRequeue.
//
// # Concurrency
//
// All methods may be called from any goroutine, the function included. Inside the function
// and the error handler of this selector Close asks for the step-down and returns at once.
// Anywhere else Close and Run return when the function has returned and the znode is gone;
// nothing that the selector has started outlives them. So a leader's function may take part in
// an inner election: the inner work has ended when Close or Run of the inner selector returns.
package selector
