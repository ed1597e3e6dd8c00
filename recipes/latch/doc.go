// Package latch provides LeaderLatch: one participant in the election of a leader, with
// the semantics and the wire format of Apache Curator's recipe of that name. Go and Java
// services can take part in one election.
//
// From Start to Close a latch is in the queue of its path, and leads whenever it is first. It does not
// give up while no server is reachable or while the server refuses it. After a loss it joins again at
// the tail. The process asks whether it leads, waits until it does, or has a listener called:
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
// Take a latch if several parts of a process ask who leads. If there is one piece of work to do while
// leading, package selector is shorter: there the work is a function, and its errors are reported and
// followed by a pause as well. docs/elections.md compares both with other tools, and examples/worker
// is a whole program.
//
// # Where the work belongs
//
// The work belongs in IsLeader, which may run for as long as the term lasts. A latch that steps down
// waits for IsLeader. It does not wait for work that runs elsewhere, such as behind Await or in a
// goroutine that IsLeader has started. Such work must end with its term's context, because otherwise
// it runs beside that of the next leader. NotLeader may wait for such a goroutine. Then close with
// [NotifyLeader], because [Silent], which is the default as in Curator, does not call NotLeader.
//
// A latch that has stepped down joins again at the tail. If its term was shorter than about 1 s, it
// pauses for that long before, because many short terms would use up the path's sequence numbers. No
// pause follows the loss of a session. If work has failed and another process is to try it, wait
// before Release, or take a selector, which does. A panic in IsLeader ends the term, because a leader
// whose work has panicked does nothing. The latch then pauses before it joins again, longer after each
// panic in a row, from 1 s to 30 s. A program that closes its latch and makes a new one gets no pause:
// in a loop it has to pause itself.
//
// Each listener has its own order of calls, so a listener that works in IsLeader for the whole term
// delays no other. The znode is deleted when all have returned.
//
// # Refusals
//
// A server may refuse a latch: an ACL forbids it to create or to list, a quota is exceeded. The latch
// tries again, with pauses that grow to 30 s, and leads once it may. Meanwhile it has no znode, so
// that the others can lead. [LeaderLatch.Err] returns the refusal, for a health check, and nil once it
// is over. The log, at Error, and [WithErrorHandler] get each refusal once, and the panic of a
// listener too.
//
// A latch waits for a participant ahead even if it may not read the znode of that one. No watch is
// possible there, so the latch lists the queue each second. Give READ to all participants.
//
// # Guarantees
//
// Those of package recipes for each term, which is a [recipes.Lease], and:
//
//  1. At most one latch of a path leads at any instant, as long as clocks run at about the
//     same rate. If a process was paused and does not know it, fencing decides: the token of
//     a term is greater than those of all earlier terms of other participants. See Suspension
//     for two terms of one latch with one token.
//  2. A term that its leader ends, by Close or Release, ends in this order: the context
//     ends, the listeners return, the znode is deleted. No other participant can lead before
//     the last step. After the grace of [WithStepDownGrace] Close returns an error, and the
//     znode stays until the listeners have returned.
//  3. A latch that was started always comes back. After any event to its znode, its parent or
//     its session, and after any refusal, it joins again once a server lets it and the
//     listeners of its last term have returned. It gives up only when the sequence numbers have
//     run out, and then Err and Await return ErrSequenceExhausted.
//  4. HasLeadership and Leadership go by the clock: after a pause of the process they are
//     right even before the term's context has ended.
//  5. The calls of each listener come one at a time, in the order of the events, under no
//     lock, and wait for no other listener. The znode is deleted when all have returned. A
//     panic in a call is recovered and reported.
//
// # Suspension
//
// Under StandardErrorPolicy a lost connection ends the term, with ErrSuspended. As in Curator
// the znode stays, and with it the latch's position: once there is a connection again and the
// listeners have returned, a new term begins on it if it is still the first. So leadership does not
// change with each lost connection.
//
// Both terms then have the same token, that of the znode. Tokens still never decrease, and no other
// participant has led in between. But fencing can't distinguish the two terms: work of the first one
// that still runs, behind Await or in a goroutine, is not refused during the second. End such work
// with its term's context.
//
// A revocation is stored in the znode. If a peer has asked for the lease before or during a
// suspension, the term after it is revoked from its beginning.
//
// On an adopted connection whose session timeout is unknown, see [recipes.NewClient], every lost
// connection is a suspension, under both policies: the znode stays there, too.
//
// # Non-guarantees
//
// After a loss, a successor can lead while our listeners still run. The term's context ends before
// the server lets another participant lead, but that one does not wait for our listeners, and a
// process that was paused learns of its loss when it runs again. Send the token to the resource that
// the leader writes to, and let that refuse lower tokens: [recipes.Lease.FencingToken] shows how in
// SQL, and [recipes.Lease.Check] guards data in ZooKeeper.
//
// IsLeader is not called for a term that is over before the call could begin. An answer of
// HasLeadership may be outdated when it is read.
//
// # Failures
//
//	what happens                           to a latch that leads            to one that waits
//	connection lost, session survives      goes on leading                  keeps its position
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
//	Client.Close                           term ends with ErrClosed         Await returns ErrClosed
//
// T is the session timeout. A latch whose term has ended joins again at the tail, after a pause if
// the term was short. After a suspension it keeps its position. When it or its client is closed, it
// does not join again. A latch that has given up has closed Decided and does not lead: make a new
// latch when the sequence numbers start again.
//
// # Concurrency
//
// All methods may be called from any goroutine, also from listeners. Inside a listener or the error
// handler of this latch, Close asks for the step-down and returns at once. In any other place, also
// in callbacks of other recipes and of other latches, it returns when all goroutines of the latch have
// ended. Only those of Observe remain, which end with their context. Release of a term always asks for
// the step-down and returns at once.
package latch
