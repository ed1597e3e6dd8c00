// Package latch provides LeaderLatch: one participant in the election of a leader, with
// the semantics and the wire format of Apache Curator's recipe of that name. Go and Java
// services can stand in one election.
//
// From Start to Close a latch stands in the queue of its path, and leads whenever it is
// first. It gives up neither for lack of a server nor when the server refuses it, and after a
// loss it joins again at the tail. The process asks whether it leads, waits until it does, or is told:
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
//	defer election.Close() // hands over, and before client.Close
//
// Take a latch where several parts of a process ask who leads. Where there is one piece of
// work to do while leading, package selector is shorter: there the work is a function,
// and its errors, too, are reported and followed by a pause. docs/elections.md compares both
// with other tools, and examples/worker is a whole program.
//
// # Where the work belongs
//
// In IsLeader, which may go on for as long as the term does. A latch that steps down waits
// for it. Work that runs elsewhere, behind Await or in a goroutine that IsLeader has
// started, is not waited for: it has to be over when its term's context is, or it runs
// beside the next leader's. NotLeader may wait for such a goroutine, but then close with
// [NotifyLeader]: [Silent], the default, as in Curator, does not call it.
//
// A latch that has stepped down stands again at once, but after a pause of about 1 s if its term
// was shorter than that, so that terms that end at once do not use up the path's sequence numbers.
// No pause follows the loss of a session. Where work fails and another process is to try it, wait
// before Release, or take a selector, which does. A panic in IsLeader ends the term, for a leader
// whose work has panicked does nothing; the latch then stands again after a pause, which grows
// from 1 s to 30 s while that goes on. A program that closes its latch and makes a new one gets
// no pause: a loop of that needs one of its own.
//
// Each listener has an order of calls of its own: one that works in IsLeader for as long as
// the term lasts holds up no other. The znode goes when all have returned.
//
// # What is in the way
//
// A server may refuse a latch: an ACL forbids it to create or to list, a quota is exceeded. The
// latch goes on with pauses that grow to 30 s, and leads once it may. Meanwhile it has no znode,
// so that it is in nobody's way. [LeaderLatch.Err] returns the refusal, for a health check, and
// nil once it is over; the log, at Error, and [WithErrorHandler] get each refusal once. So they do
// the panic of a listener.
//
// A participant whose znode may not be read is waited for all the same. No watch tells of its
// end there, so the queue is listed each second. Give READ to all participants.
//
// # Guarantees
//
// Those of package recipes for each term, which is a [recipes.Lease], and:
//
//  1. At most one latch of a path leads at any instant, as long as clocks run at about the
//     same rate. Where a process pauses and can't know, fencing decides: the token of a
//     term is greater than those of all terms that others have led before. See Suspension for
//     two terms of one latch with one token.
//  2. A term that its leader ends, by Close or Release, ends in this order: the context
//     ends, the listeners return, the znode is deleted. Nobody else can lead before the
//     last step. After the grace of [WithStepDownGrace] Close returns an error, and the
//     znode stays until the listeners have returned.
//  3. A latch that was started is never idle: whatever happens to its znode, its parent or
//     its session, and whatever the server refuses, it stands again once a server lets it and
//     the listeners of its last term have returned. It gives up only when the sequence numbers
//     have run out, and then says so.
//  4. HasLeadership and Leadership go by the clock: after a pause they tell the truth
//     before anybody was told of the loss.
//  5. The calls of each listener come one at a time, in the order of what happened, under no
//     lock, and wait for no other listener. The znode is deleted when all have returned. A
//     panic in one is contained and reported.
//
// # Suspension
//
// Under StandardErrorPolicy a lost connection ends the term, with ErrSuspended. As in Curator
// the znode stays, and with it the latch's place: once there is a connection again and the
// listeners have returned, a new term begins on it if it is still the first. So a connection
// that comes and goes does not pass leadership around.
//
// Both terms then have one token, that of the znode. Tokens still never decrease, and no other
// participant has led in between. But the token does not tell the two terms apart: what still
// runs of the first one, behind Await or in a goroutine, is not refused because of the second
// of the same latch. End it with its term's context.
//
// A revocation is in the znode, and stays with it. A term that begins after a suspension is revoked
// from its beginning if a peer has asked for the lease before or during the suspension.
//
// On an adopted connection whose session timeout is unknown, see [recipes.NewClient], every lost
// connection is a suspension, under either policy: the znode stays there, too.
//
// # Non-guarantees
//
// After a loss nobody can hold back a successor. The term's context ends before the server
// lets another one lead, but that one does not wait for our listeners, and a process that
// was paused learns of its loss when it runs again. Give the token to what the leader
// writes to, and have it refuse lower ones: [recipes.Lease.FencingToken] shows how in SQL,
// and [recipes.Lease.Check] guards data in ZooKeeper.
//
// IsLeader is not called for a term that is over before its turn has come. An answer of
// HasLeadership may be outdated when it is read.
//
// # Failures
//
//	what happens                           to a latch that leads            to one that waits
//	connection lost, session survives      leads on                         keeps its place
//	  the same, StandardErrorPolicy        term ends with ErrSuspended, and keeps its place
//	                                       a new one begins on its znode
//	no proof of life for 2/3 of T          term ends with ErrSessionLost    keeps its place
//	session expired                        term ends with ErrSessionLost    joins again at the tail
//	own znode deleted, parent wiped        term ends with ErrNodeDeleted    joins again at the tail
//	the server refuses (zk.ErrNoAuth)      –                                leaves, and joins again after
//	                                                                        a pause: Err says why
//	sequence numbers run out               –                                gives up: Await says why
//	IsLeader panics                        term ends with ErrReleased       –
//	NotLeader panics                       is reported                      –
//	Release of the term                    term ends with ErrReleased       –
//	Client.Close                           term ends with ErrClosed         Await returns ErrClosed
//
// T is the session timeout. A latch whose term has ended joins again at the tail, after a pause if
// the term was short. After a suspension it keeps its place, and once it or its client is closed it
// does not join again. A latch that has given up has closed Decided and does not lead; make a new
// one when the cause is gone.
//
// # Concurrency
//
// All methods may be called from any goroutine, listeners included. Inside a listener or the
// error handler of this latch Close asks for the step-down and returns at once. Anywhere else,
// the callbacks of other recipes and of other latches included, it returns when all goroutines
// of the latch have ended, but for that of Observe, which ends with its context. Release of a
// term always asks for the step-down and returns at once.
package latch
