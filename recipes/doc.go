// Package recipes has the types shared by all recipes of this library. A [Client] is a ZooKeeper session, and a [Lease]
// is a single acquisition in a session.
//
// A service makes one Client and keeps it:
//
//	client, err := recipes.Connect(ctx, []string{"zk1:2181", "zk2:2181", "zk3:2181"})
//	if err != nil {
//		return err
//	}
//	defer client.Close() // or Shutdown(ctx), which is bounded by a context and names all leftovers
//
// and passes the Client to the recipes:
//
//   - Locks: [github.com/zkrecipes/zkrecipes/recipes/mutex.New], [github.com/zkrecipes/zkrecipes/recipes/rwlock.New], [github.com/zkrecipes/zkrecipes/recipes/semaphore.New] and
//     [github.com/zkrecipes/zkrecipes/recipes/multilock.New]; [github.com/zkrecipes/zkrecipes/recipes/revoke.New] asks a holder to release.
//   - Elections: [github.com/zkrecipes/zkrecipes/recipes/latch.New] and [github.com/zkrecipes/zkrecipes/recipes/selector.New];
//     [github.com/zkrecipes/zkrecipes/recipes/spread.New] spreads many of them.
//   - Jobs and members: [github.com/zkrecipes/zkrecipes/recipes/once.New] and [github.com/zkrecipes/zkrecipes/recipes/group.New].
//   - [github.com/zkrecipes/zkrecipes/recipes/zkcompat.NewLock] has the methods of zk.Lock, and
//     [github.com/zkrecipes/zkrecipes/recipes/inspect.Read] shows holders and waiters.
//   - [github.com/zkrecipes/zkrecipes/recipes/zktest.NewServer] is a ZooKeeper inside the test process.
//
// The pages for users are at https://github.com/zkrecipes/zkrecipes/tree/main/docs.
//
// # Guarantees
//
// The following holds for the leases of all recipes.
//
//  1. Mutual exclusion: at most one exclusive hold of a path is valid at any instant, as long as clocks run at
//     about the same rate. If a process was paused without noticing, fencing decides: tokens of successive
//     holders strictly grow. Inside a cohort (mutex.WithCohort), holders who follow each other by Release have
//     equal tokens.
//  2. Loss is reported before it can do harm. A lease's context ends before the server can grant the lock to another
//     contender.
//  3. No leftovers. A failed attempt's znode exists at most until the session ends. While the session lives, the client
//     repeats the deletion in the background until a server confirms it.
//  4. No herd. A waiter watches the znode ahead and, if it is next or waited for 3 s, its own. A release wakes a single
//     waiter, however long the queue is.
//  5. FIFO: leases are granted in the order in which the server numbered the
//     requests.
//  6. A lease is granted only if the server showed that the lease's znode exists, that no contender ahead excludes it,
//     and that it belongs to the live session.
//  7. After a loss of the session, a waiter joins again: with a new znode at the tail, under the retry policy,
//     bounded by the caller's context. A waiter whose session survives keeps its position.
//
// # Non-guarantees
//
// No library can rule out the following on ZooKeeper:
//
//   - A process that is paused for longer than the session, or whose machine is suspended for longer, finds out about
//     the loss only after resuming. Its first steps after the pause may follow the loss. After a suspension of the
//     machine the context may end up to T/6 late, because Go's timers stop during a suspension. Lease.TrustedUntil is
//     right at once on Linux, macOS and Windows.
//   - If another client closes the session, or deletes the lease's znode, the next contender may be granted the
//     lock before the holder finds out.
//   - Servers with different bounds of the session timeout, or with bounds lowered while clients run, may end a
//     session before the client knows the new timeout. Keep the bounds the same on all servers.
//   - A server whose minSessionTimeout was set below two ticks may expire sessions
//     earlier than the margin of the deadline allows for. Keep SessionTimeout ≥
//     2 × tickTime, and ≥ 4 × tickTime behind observers that follow an ObserverMaster.
//   - Servers emptied, or restored from a backup, within 2T/3 know nothing of leases still valid, and may grant
//     the same locks again. Tokens begin again as well, so fencing does not help: leave the servers down for T.
//
// In each of these cases but the last, the fencing token at the guarded resource decides (see [Lease.FencingToken] for
// SQL and [Lease.Check] for data in ZooKeeper).
//
// # Failures
//
//	what happens                           what a lease does            what a waiter does
//	connection lost, session survives      stays valid                  keeps its position
//	  the same, StandardErrorPolicy        ends with ErrSuspended       keeps its position
//	no proof of life for 2/3 of T          ends with ErrSessionLost     keeps its position
//	a quorum slower than T/6, up to T/3    stays valid                  keeps its position
//	session expired                        ends with ErrSessionLost     joins again at the tail
//	servers emptied, or restored           ends with ErrSessionLost     joins again at the tail, T later
//	own znode deleted by another client    ends with ErrNodeDeleted     joins again at the tail
//	Client.Close, Client.Shutdown          ends with ErrClosed          returns ErrClosed
//	Release                                ends with ErrReleased        –
//
// T is the session timeout, which is the least that any server granted to the session. A proof of life is a write of
// this client committed by the quorum. An answer to a ping, a read or a sync proves nothing, because a server cut off
// from the quorum still answers. So while a lease is held, the client commits an empty transaction every T/6, unless
// the client has other writes. A waiter proves the session in its turn.
//
// A client re-reads everything it watches once per T, to catch lost notifications. A watch without waiters is removed
// from the server instead (from ZooKeeper 3.5 on). The client also checks the watched znodes at the leader, every 20
// T to 25 T, and every T/2 while the client holds something. If the leader deleted a znode still shown by the
// client's server, the client connects to another server.
//
// # Concurrency
//
// All methods of Client and Lease may be called from any goroutine. Callbacks of the user run one at a time and
// in order; each listener of a latch has an order of its own. No lock is held during a callback. A panic in a
// callback is recovered and logged at Error, with the stack as an attribute. Without [WithLogger] the log is
// slog.Default. Close waits for every goroutine started by the client, and the error of Close names anything
// still running.
//
// # Platforms
//
// All tests run on Linux. Continuous integration also builds the library for macOS, Windows and FreeBSD, and runs the
// short unit tests on macOS and Windows. The guarantees are the same there, except after a suspension of the machine
// on FreeBSD, as Lease.TrustedUntil explains. Other systems of Go are like FreeBSD, and untested.
package recipes
