// Package latch provides LeaderLatch: one participant in the election of a leader, with
// the semantics and the wire format of Apache Curator's recipe of that name. Go and Java
// services can stand in one election.
//
// From Start to Close a latch stands in the queue of its path, and leads whenever it is
// first. It never gives up for lack of a server, and after a loss it joins again at the
// tail. The process asks whether it leads, waits until it does, or is told:
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
// and its errors are reported and followed by a pause. docs/elections.md compares both
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
// A latch that has stepped down stands again at once, without a pause. Where work fails and
// another process is to try it, wait before Release, or take a selector, which does. A
// panic in IsLeader leaves a leader that does nothing.
//
// While one listener is inside IsLeader, the others are not called: put what only wants to
// know, such as a gauge, in front of the one that works, or use Observe.
//
// # Guarantees
//
// Those of package recipes for each term, which is a [recipes.Lease], and:
//
//  1. At most one latch of a path leads at any instant, as long as clocks run at about the
//     same rate. Where a process pauses and can't know, fencing decides: tokens of
//     successive terms strictly grow.
//  2. A term that its leader ends, by Close or Release, ends in this order: the context
//     ends, the listeners return, the znode is deleted. Nobody else can lead before the
//     last step. After the grace of [WithStepDownGrace] Close returns an error, and the
//     znode stays until the listeners have returned.
//  3. A latch that was started is never idle: whatever happens to its znode, its parent or
//     its session, it stands again once a server answers and the listeners of its last
//     term have returned. The one exception is a server that refuses for good, as by an
//     ACL: see Failures.
//  4. HasLeadership and Leadership go by the clock: after a pause they tell the truth
//     before anybody was told of the loss.
//  5. The calls of all listeners come one at a time, in the order of what happened, under no
//     lock. A panic in one is contained and logged.
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
//	  the same, StandardErrorPolicy        term ends with ErrSuspended      keeps its place
//	no proof of life for 2/3 of T          term ends with ErrSessionLost    keeps its place
//	session expired                        term ends with ErrSessionLost    joins again at the tail
//	own znode deleted, parent wiped        term ends with ErrNodeDeleted    joins again at the tail
//	the server refuses (zk.ErrNoAuth)      –                                gives up: Await says why
//	a listener panics                      leads on; the panic is logged    –
//	Release of the term                    term ends with ErrReleased       –
//	Client.Close                           term ends with ErrClosed         Await returns ErrClosed
//
// T is the session timeout. A latch whose term has ended joins again at the tail, unless it
// or its client was closed. One that has given up has closed Decided and does not lead;
// make a new one when the cause is gone.
//
// # Concurrency
//
// All methods may be called from any goroutine, listeners included. Inside a listener Close
// and Release ask for the step-down and return at once. Elsewhere Close returns when all
// goroutines of the latch have ended, but for that of Observe, which ends with its context.
package latch
