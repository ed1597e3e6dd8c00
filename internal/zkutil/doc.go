// Package zkutil is the ground floor of the engine under every recipe: errors and their classes, retries and
// paths.
//
// # The house
//
// All recipes share one engine. Its floors are packages, and each floor imports only lower floors:
//
//	recipes/mutex, latch, selector, …   the recipes for users; recipes has Client and Lease,
//	                                    recipes/internal the shared parts; recipes/inspect
//	                                    looks at queues from outside
//	internal/zkutil/election            terms of leadership, and the step-down after each
//	internal/zkutil/permits             a semaphore on two queues
//	internal/zkutil/cohort              many callers, one contender
//	internal/zkutil/queue               contenders: ephemeral-sequential znodes, each of which watches
//	                                    its predecessor
//	internal/zkutil/znodes              reads and writes of znodes that are no contenders of the caller
//	internal/zkutil/track               the configuration of the ensemble, for a session that follows it
//	internal/zkutil/session             one session: whether it is alive, requests, watches, holds,
//	                                    removal, the end
//	internal/zkutil/budget              the bytes of a session's ephemeral znodes, and who may create
//	                                    the next one
//	internal/zkutil/departures          contenders that a session deletes in the background
//	internal/zkutil/leftovers           the deletions that calls leave to the background
//	internal/zkutil/shared              values that several recipes of a session share
//	internal/zkutil/trace               the user's hooks for acquisitions, leases and states
//	internal/zkutil/logs                the user's logger
//	internal/zkutil/callbacks           functions of the user, one at a time
//	internal/zkutil/ops                 which operations the servers lack
//	internal/zkutil/wire                a connection with the features that zk.Conn lacks
//	internal/zkutil/core                what is granted and until when, and what is due: decisions alone
//	internal/zkutil/dial                the next server, and a socket within the patience
//	internal/zkutil/connstate           the states of a connection, and subscriptions
//	internal/zkutil                     this package
//	internal/proto                      ZooKeeper's messages as bytes, and whether a frame is whole
//
// A mutex is a queue, or a cohort on one. A latch and a selector are queues that a candidate of package election joins in
// the background, again and again. Packages election, permits and cohort do not import each other. An Acquire passes each
// floor once. The queue creates a znode, reads the contenders ahead and waits for the predecessor, and the session grants
// the hold.
//
// # Where to look
//
//   - The proof that a session is alive, and until when: core/ledger.go, core/gaps.go, and the table of times in core/timing.go.
//     When the server may have received nothing, and when a ping is due: core/contact.go.
//   - When a heartbeat, an audit or the end of trust is due: Ledger.Decide in core/plan.go.
//     session/keeper.go carries out the decision.
//   - The order in which a session ends, and the waits for the end: session/close.go.
//   - The conditions of a hold, checked in one step: Claim.Decide in core/hold.go, called by holds.tryGrant in session/grant.go.
//   - The algorithm of the queue: queue/waiter.go. Who waits for whom: Rule in queue/queue.go. The rules of other locks are in
//     their recipes, the reader/writer rule in recipes/rwlock. A read lock under the write lock: queue/under.go. The permits of
//     a semaphore: permits/permits.go. When a cohort gives the lock up: Bounds.next in cohort/stay.go. When the znode of a
//     leader is deleted: election/candidate.go. Who asks whom to step down for a priority: election/steering.go.
//   - Where a request is sent: gate.send in session/gate.go, then Line.Send in wire/outbox.go. When the answer to a create is
//     lost: createProtected in session/create.go.
//   - What ends a hold, and what happens to its znode: Session.OnEnd in core/hold.go. What a cohort does then: tenure.attend and advanceLocked
//     in cohort.
//   - A notification that never arrives: keeper.startReadsLocked in session/keeper.go. Watches after a reconnect: those of the
//     engine fire (watches.loseLocked in session/watch.go), and those of a user of zk.Conn are set again (wire/restore.go).
//   - When a silent server is left: Ledger.isSilent in core/plan.go, and wire/abandon.go for the writes in flight.
//   - The locks, and their order: session/doc.go, wire/doc.go.
//   - Which server is next: dial/hosts.go. How long an attempt may take: dial/patience.go.
//   - Who may create a znode when a session is full: budget/budget.go.
package zkutil
