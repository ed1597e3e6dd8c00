// Package zkutil is the ground floor of the engine under every recipe: errors and their classes,
// retries, paths, and the table of times by which trust is kept.
//
// # The house
//
// There is one engine. Its floors are packages, and each imports only those below it:
//
//	recipes/mutex, latch, selector, …   what a user asks for; recipes has Client and Lease,
//	                                    recipes/internal what these packages share; recipes/inspect
//	                                    looks at queues from outside
//	internal/zkutil/queue               contenders: ephemeral-sequential znodes, each of which watches
//	                                    its predecessor
//	internal/zkutil/session             one session: whether it is alive, requests, watches, holds,
//	                                    removal, the end
//	internal/zkutil/wire                a connection that does what zk.Conn leaves out
//	internal/zkutil                     this package
//	internal/proto                      ZooKeeper's messages
//
// A mutex is a queue. A latch and a selector are queues that are joined in the background, again and
// again. An Acquire goes down once: the queue creates a znode, looks who is ahead and waits for its
// predecessor, and the session grants the hold.
//
// # Where to look
//
//   - What proves that a session is alive, and until when: timing.go, session/liveness.go.
//   - When a heartbeat, an audit or the end of trust is due: liveness.decide in session/liveness.go.
//     session/keeper.go carries it out, session/beat.go sends.
//   - The order in which a session ends: session/lifecycle.go.
//   - What a hold rests on, checked in one step: Session.tryGrant in session/grant.go.
//   - The algorithm of the queue: queue/waiter.go. Who waits for whom: Rule in queue/queue.go. The
//     rules of other locks are in their recipes: recipes/rwlock has that of readers and writers. A read
//     lock under the write lock: queue/under.go. The permits of a semaphore: queue/permits.go.
//   - Watches after a reconnect: wire/restore.go.
package zkutil
