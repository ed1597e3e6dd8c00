// Package latch provides LeaderLatch, a participant in the election of a leader, with the semantics and the wire format of the
// Apache Curator recipe of the same name. Go and Java services can take part in one election.
//
// From Start to Close a latch is in the queue of its path, and leads whenever it is first. A latch does not
// give up while no server is reachable or while the server refuses requests. After a loss the latch joins again
// at the tail. The process asks whether the latch leads, waits for leadership, or has a listener called:
//
//	election, err := latch.New(client, "/services/billing", latch.WithID("billing-7"),
//		latch.WithListener(latch.Listener{IsLeader: func(term *recipes.Lease) {
//			bill(term.Context(), term.FencingToken()) // returns when the context ends
//		}}))
//	if err != nil {
//		return err
//	}
//	if err := election.Start(); err != nil {
//		return err
//	}
//	defer election.Close() // before client.Close, so that the next latch can lead at once
//
// Use a latch if several parts of a process ask who leads. If the leader has a single piece of work to do, package
// selector is shorter. The work is a function, and errors of the function are reported and followed by a pause as well.
// docs/from-others.md compares both with other tools, and examples/worker is a whole program.
//
// # Where the work belongs
//
// The work belongs in IsLeader, which may run for as long as the term lasts. A latch that steps down waits for
// IsLeader, but not for work elsewhere, such as behind Await or in a goroutine started by IsLeader. Such work
// must end with the term's context, because otherwise the work overlaps with the work of the next leader.
// NotLeader may wait for such a goroutine. Then close with [NotifyLeader], because [Silent], which is the
// default as in Curator, does not call NotLeader.
//
// A latch that steps down joins again at the tail. After a term shorter than about 1 s, the latch first pauses for about 1 s,
// because many short terms would use up the path's sequence numbers. No pause follows the loss of a session. If work failed and
// another process is to try the work next, wait before Release, or use a selector, which does. A panic in IsLeader ends the
// term, because a leader whose work panicked does nothing. The latch then pauses before joining again, longer after each panic
// in a row, from 1 s to 30 s. A program that closes its latch and makes a new latch gets no pause, so in a loop, the program
// has to pause.
//
// Each listener has its own order of calls, so a listener that works in IsLeader for the whole term delays no other. The znode
// is deleted when all of them return.
//
// # Priorities
//
// With [WithPriority] the candidate of the highest priority leads: for example, the replica nearest to the data. After a new
// candidate takes part for 5 s, it asks the candidates of lower priority ahead to yield: first the waiting ones, and then the
// leader. A candidate that yields steps down in the usual order, and joins again at the tail. So an arrival changes the leader
// at most once. Exclusion does not depend on priorities: it rests on the order of the queue and on the step-down, as ever. The
// cause of the term's end is ErrReleased.
//
//   - Candidates of the same priority lead in the order of arrival.
//   - A candidate that leaves within 5 s disturbs no other. If candidates of a higher priority arrive again and again, each has to wait
//     longer after its request than the one before, up to 5 minutes, and one that fails earlier does not lead. All candidates that make way
//     count, also those in the queue, so the damping does not depend on which of them leads. It ends after 5 minutes without a request, and
//     a process that just started has none.
//   - An election at rest sends nothing for its priorities. A candidate with others of a lower priority ahead also watches the next better
//     candidate: if that one leaves, it looks at the queue, and no other does.
//   - If the process of the preferred candidate hangs, no candidate leads until its session expires.
//   - The priority is part of the name of the znode: _c_<uuid>-p5-latch-0000000007. It does not change while the candidate takes part. A
//     request to yield replaces the id in the znode of the candidate; Participants still shows the id.
//   - Candidates without a priority, and Curator's, take part as before. They are never asked to yield, and no candidate yields to one
//     behind them.
//
// TransferTo makes a chosen candidate the leader, for maintenance: all candidates ahead of it yield in the same way, at once. Several transfers at the
// same time are done one after the other.
//
// # Refusals
//
// A server may refuse a latch, because an ACL forbids creating or listing znodes, or a quota is exceeded. The latch
// tries again, with pauses that grow to 30 s, and leads once the server permits. Meanwhile the latch has no znode, so
// that others can lead. [LeaderLatch.Err] returns the refusal, for a health check, and nil once the refusal is over.
// The log, at Error, and [WithErrorHandler] get each refusal once, and each panic of a listener too.
//
// A latch also waits for a znode that has the name of a participant but is not ephemeral. No candidate can lead until a client
// deletes such a znode, so the znode is reported like a refusal, as ErrNotEphemeral.
//
// A latch waits for a participant ahead even if an ACL forbids reading the participant's znode. A watch is then
// not possible, so the latch lists the queue each second. Give READ to all participants.
//
// # Guarantees
//
// The guarantees of package recipes hold for each term, which is a [recipes.Lease]. In addition:
//
//  1. At most one latch of a path leads at any instant, as long as clocks run at about the same rate. If a process was
//     paused without noticing, fencing decides. The token of a term is greater than the tokens of all earlier terms of
//     other participants. See Suspension for two terms of the same latch with the same token.
//  2. When a leader ends its term, by Close or Release, first the context ends, then the listeners return, and then the
//     znode is deleted. No other participant can lead before the last step. After the grace of [WithStepDownGrace]
//     Close returns an error, and the znode exists until the listeners return. Listeners that still run after their
//     term are reported, after a second and then once a minute (see [LeaderLatch.Err]).
//  3. A started latch always joins again. After any event to the znode, the parent or the session, and after any
//     refusal, the latch joins again once a server permits and the listeners of the last term returned. A latch gives
//     up only when no sequence numbers are left, and then Err and Await return ErrSequenceExhausted.
//  4. HasLeadership and Leadership go by the clock. After a pause of the process both are right even before the term's
//     context ends.
//  5. The calls of each listener run one at a time, in the order of the events, under no lock, and wait for no other
//     listener. The znode is deleted after all of them returned. A panic in a call is recovered and reported.
//
// # Suspension
//
// Under StandardErrorPolicy a lost connection ends the term, with ErrSuspended. As in Curator, the latch keeps the znode and
// the position: after the reconnect, and once the listeners return, a new term begins on the same znode if it is still the
// first. So leadership does not change with each lost connection.
//
// Both terms then have the same token, the token of the znode. Tokens still never decrease, and no other participant leads in
// between. But fencing can't distinguish the two terms: work of the first term still running, behind Await or in a goroutine,
// is not refused during the second. End such work with its term's context.
//
// A revocation is stored in the znode. If a peer asks for the lease before or during a suspension, the following term is
// revoked from the beginning.
//
// # Non-guarantees
//
// After a loss, a successor can lead while the listeners of the former leader still run. The term's context
// ends before the server lets another participant lead, but the successor does not wait for those listeners,
// and a paused process finds out about the loss only after resuming. Send the token to the resource that the
// leader writes to, and make the resource refuse lower tokens: [recipes.Lease.FencingToken] shows how in SQL,
// and [recipes.Lease.Check] guards data in ZooKeeper.
//
// IsLeader is not called for a term that is over before the call could begin. An answer of HasLeadership may be
// outdated by the time the caller reads it.
//
// # Failures
//
//	what happens                           to a latch that leads            to a waiting latch
//	connection lost, session survives      continues to lead                keeps its position
//	  the same, StandardErrorPolicy        term ends with ErrSuspended, and keeps its position
//	                                       a new one begins on its znode
//	no proof of life for 2/3 of T          term ends with ErrSessionLost    keeps its position
//	session expired                        term ends with ErrSessionLost    joins again at the tail
//	own znode deleted, parent wiped        term ends with ErrNodeDeleted    joins again at the tail
//	the server refuses (zk.ErrNoAuth)      –                                leaves, and joins again after
//	                                                                        a pause: Err returns why
//	sequence numbers run out               –                                gives up: Await returns why
//	IsLeader panics                        term ends with ErrReleased       –
//	NotLeader panics                       is reported                      –
//	Release of the term                    term ends with ErrReleased       –
//	WithMaxHold is over                    term ends with ErrMaxHold        –
//	Client.Close                           term ends with ErrClosed         Await returns ErrClosed
//
// T is the session timeout. A latch joins again at the tail after its term, after a pause if the term was short. After a
// suspension the latch keeps its position. After Close of the latch or the client, the latch does not join again. A latch that
// gave up has Decided closed and does not lead. Make a new latch when the sequence numbers restart.
//
// # Concurrency
//
// All methods may be called from any goroutine, also from listeners. Inside a listener or the error handler of this latch,
// Close asks for the step-down and returns at once. In any other place, also in callbacks of other recipes and of other
// latches, Close returns when all goroutines of the latch end, except the goroutines of Observe, which end with their context.
// Release of a term always asks for the step-down and returns at once.
package latch
