// Package selector provides LeaderSelector, a participant in the election of a leader, together with the leader's work, with
// the semantics and the wire format of the Apache Curator recipe of the same name. Go and Java services can take part in one
// election.
//
// The work is a function. The selector calls the function when it is first in the queue of its path, and leads
// until the function returns:
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
// With [WithAutoRequeue] the selector joins again at the tail after each term, which suits services. Without
// automatic requeue, the selector leaves the election after one term, until Requeue. Run then returns, with the
// outcome of the term.
//
// Use a selector if the leader has work to do. If other parts of the process ask who leads, use package latch.
// docs/from-others.md compares both with other tools.
//
// # Priorities
//
// With [WithPriority] the candidate of the highest priority leads: for example, the replica nearest to the data. After a new
// candidate takes part for 5 s, it asks the candidates of lower priority ahead to yield: first the waiting ones, and then the
// leader. A candidate that yields steps down in the usual order, and joins again at the tail, if it requeues. So an arrival
// changes the leader at most once. Exclusion does not depend on priorities: it rests on the order of the queue and on the
// step-down, as ever. The cause of the term's end is ErrReleased.
//
//   - Candidates of the same priority lead in the order of arrival.
//   - A candidate that leaves within 5 s disturbs no other. If candidates of a higher priority arrive again and again, each has to wait
//     longer after its request than the one before, up to 5 minutes, and one that fails earlier does not lead. All candidates that make way
//     count, also those in the queue, so the damping does not depend on which of them leads. It ends after 5 minutes without a request, and
//     a process that just started has none.
//   - An election at rest sends nothing for its priorities. A candidate with others of a lower priority ahead also watches the next better
//     candidate: if that one leaves, it looks at the queue, and no other does.
//   - If the process of the preferred candidate hangs, no candidate leads until its session expires.
//   - The priority is part of the name of the znode: _c_<uuid>-p5-lock-0000000007. It does not change while the candidate takes part. A
//     request to yield replaces the id in the znode of the candidate; Participants still shows the id.
//   - Candidates without a priority, and Curator's, take part as before. They are never asked to yield, and no candidate yields to one
//     behind them.
//
// TransferTo makes a chosen candidate the leader, for maintenance: all candidates ahead of it yield in the same way, at once. Several transfers at the
// same time are done one after the other.
//
// # Guarantees
//
// The guarantees of package recipes hold for each term, which is a [recipes.Lease]. In addition:
//
//  1. At most one selector of a path leads at any instant, as long as clocks run at about the same rate. If a
//     process was paused without noticing, fencing decides: tokens of successive terms strictly grow.
//  2. A term that ends without a loss, by Close, InterruptLeadership, Release, or because the function returned, ends
//     in this order. First the context ends, then the function returns, and last the znode is deleted. No other
//     selector can lead before the last step. After the grace of [WithStepDownGrace] Close returns an error, and the
//     znode exists until the function returns. A function that still runs after its term is reported, after a second
//     and then once a minute, to the error handler and to the log at Warn.
//  3. Calls of the function never overlap. A waiting selector keeps its position at a disconnection.
//  4. Errors and panics of the function are never lost. The error handler or the log gets each of them, or Run returns
//     it. Without [recipes.WithLogger] the log is slog.Default. An error is ignored only if every part of the error
//     reports the end of the term's context. A panic is never ignored.
//  5. After an error the automatic requeue waits, longer each time. It also waits after a term of less than a second
//     (see [WithRequeueBackoff]). It does not wait after a longer success.
//  6. Under Run the context of a term has the values of Run's context, and ends with the same cause when Run's
//     context ends.
//
// # Non-guarantees
//
// After a loss, a successor can lead while the function of the former leader still runs. The term's context
// ends before the server lets another selector lead, but the successor does not wait for that function, and a
// paused process finds out about the loss only after resuming. Send the token to the resource that the leader
// writes to, and make the resource refuse lower tokens: [recipes.Lease.FencingToken] shows how in SQL, and
// [recipes.Lease.Check] guards data in ZooKeeper.
//
// The function is not called for a term that is over before the call could begin.
//
// # Failures
//
//	what happens                           to a selector that leads         to a waiting selector
//	connection lost, session survives      continues to lead                keeps its position
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
//	a znode ahead is not ephemeral         –                                waits for it: reported once,
//	                                                                        as ErrNotEphemeral
//	sequence numbers run out               –                                gives up: reported, and
//	                                                                        returned by Run
//	InterruptLeadership, Release           term ends with ErrReleased       –
//	WithMaxHold is over                    term ends with ErrMaxHold        –
//	Client.Close                           term ends with ErrClosed         leaves
//
// T is the session timeout. "Requeued" applies to automatic requeue only, which also follows a lost term. A selector that gave
// up joins again after Requeue or AutoRequeue.
//
// # Concurrency
//
// All methods may be called from any goroutine, also from the function. Inside the function and the error handler of this
// selector, Close asks for the step-down and returns at once. In any other place Close and Run return after the function
// returns, the znode is deleted, and all goroutines of the selector end. So a leader's function may take part in an inner
// election, whose work is over when Close or Run of the inner selector returns.
package selector
