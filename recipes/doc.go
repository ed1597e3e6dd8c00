// Package recipes has the types that all recipes of this library share: the [Client], which is one
// ZooKeeper session, and the [Lease], which is one acquisition in a session.
//
// A service makes one Client and keeps it:
//
//	client, err := recipes.Connect(ctx, []string{"zk1:2181", "zk2:2181", "zk3:2181"})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
// and gives it to the recipes: package mutex is a lock, packages latch and selector elect a leader,
// package revoke asks another holder for its lock.
//
// # Guarantees
//
// These hold for the leases of all recipes.
//
//  1. Mutual exclusion: at most one exclusive hold of a path is valid at any
//     instant, as long as clocks run at about the same rate. If a process was paused and
//     does not know it, fencing decides: tokens of successive holders strictly grow. Inside
//     a cohort (mutex.WithCohort) holders who follow each other by Release have equal tokens.
//  2. Loss is reported before it can do harm: a lease's context ends before the server
//     can grant the lock to another contender.
//  3. No ghost: after a failed attempt its znode exists at most until the session ends.
//     While the session lives, the znode is deleted in the background until that is
//     confirmed.
//  4. No herd: a waiter watches the znode ahead and, if it is the next or has waited for
//     3 s, its own. One release wakes one waiter, however long the queue is.
//  5. FIFO: leases are granted in the order in which the server numbered the
//     requests.
//  6. A lease is granted only if the server has shown that its znode is there, with
//     nobody ahead who excludes it, and belongs to the live session.
//  7. A session that is lost while waiting is replaced: a new znode at the tail,
//     under the retry policy, bounded by the caller's context. A waiter whose session
//     survives keeps its position.
//
// # Non-guarantees
//
// No library can promise these on ZooKeeper:
//
//   - A process that is paused, or a machine that is suspended, for longer than the
//     session learns of its loss only when it runs again. Its first steps after the pause
//     may come after the loss. After a suspension of the machine the context ends up to T/6
//     late, because Go's timers stop during it. Lease.TrustedUntil is right at once on Linux.
//   - If another client closes the session, or deletes the lease's znode, the next
//     contender may be granted before the holder knows of it.
//   - Servers with different bounds of the session timeout, or bounds that are lowered while
//     clients run, may end a session before the client knows its new timeout. Keep them
//     the same on all servers.
//   - A server whose minSessionTimeout was set below two ticks may expire sessions
//     earlier than the margin of the deadline allows for. Keep SessionTimeout ≥
//     2 × tickTime, and ≥ 4 × tickTime behind observers that follow an ObserverMaster.
//
// In each of these the fencing token at the guarded resource decides: see
// [Lease.FencingToken] for SQL and [Lease.Check] for data in ZooKeeper.
//
// # Failures
//
//	what happens                           what a lease does            what a waiter does
//	connection lost, session survives      stays valid                  keeps its position
//	  the same, StandardErrorPolicy        ends with ErrSuspended       keeps its position
//	no proof of life for 2/3 of T          ends with ErrSessionLost     keeps its position
//	a quorum slower than T/6, up to T/3    stays valid                  keeps its position
//	session expired                        ends with ErrSessionLost     joins again at the tail
//	own znode deleted by another client    ends with ErrNodeDeleted     joins again at the tail
//	Client.Close                           ends with ErrClosed          returns ErrClosed
//	Release                                ends with ErrReleased        –
//
// T is the session timeout: the shorter of the one that the latest handshake has granted and the one
// with which the session was created. A proof of life is a write of this client that the quorum has
// committed. An answer to a ping, a read or a sync is none, because a server that is cut off from its
// quorum still gives those. So while a lease is held, the client commits an empty transaction every
// T/6, unless it has other writes. One that waits gives that proof when its turn has come.
//
// What a client watches it reads once in T, so that it finds what it was not told. At the
// leader it checks that every 20 T to 25 T, and every T/2 while it holds something. If a znode is gone
// there that its server shows, the client leaves that server for another.
//
// # Concurrency
//
// All methods of Client and Lease may be called from any goroutine. Callbacks of the user run one at
// a time and in order; each listener of a latch has an order of its own. No lock is held during a
// callback. A panic in a callback is recovered and logged at Error, with the stack as an attribute.
// Without [WithLogger] the log is slog.Default. Close waits for every goroutine that the client has
// started.
package recipes
