// Package recipes holds what all recipes of this library share: the [Client], which
// is one ZooKeeper session, and the [Lease], which is one acquisition in it.
//
// A service makes one Client and keeps it:
//
//	client, err := recipes.Connect(ctx, []string{"zk1:2181", "zk2:2181", "zk3:2181"})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
// and gives it to the recipes: package mutex for a lock, packages latch and selector to
// elect a leader, package revoke to ask another holder for its lock back.
//
// # Guarantees
//
// These hold for every Lease, whichever recipe it came from.
//
//  1. Mutual exclusion: at most one exclusive hold of a path is valid at any
//     instant, as long as clocks run at about the same rate. Where a process pauses
//     and can't know, fencing decides: tokens of successive holders strictly grow.
//  2. Loss is told before it can matter: a lease's context ends before the server
//     can grant the lock to another.
//  3. No ghost: whatever fails, no znode of ours outlives the attempt by more than
//     the session, and while the session lives it is deleted in the background until
//     that is confirmed.
//  4. No herd: a waiter watches its own znode and the one ahead; one release wakes
//     one waiter, whatever the queue's length.
//  5. FIFO: leases are granted in the order in which the server numbered the
//     requests.
//  6. A lease is granted only if its znode is in the list and belongs to the live
//     session.
//  7. A session that is lost while waiting is replaced: a new znode at the tail,
//     under the retry policy, bounded by the caller's context. A waiter whose session
//     survives keeps its place.
//
// # Non-guarantees
//
// Nobody can promise these on ZooKeeper, and this library does not:
//
//   - A process that is paused, or a machine that is suspended, for longer than the
//     session does not learn of its loss until it runs again. In between it may act.
//     After a suspension the context ends up to T/6 late, for Go's timers stand still in
//     it; Lease.TrustedUntil is right at once on Linux.
//   - A session closed by somebody who knows its id and password, and a znode deleted
//     by a third party, may let the next one in before the holder hears of it.
//   - Servers whose bounds of the session timeout differ, or are lowered under running
//     clients, may end a session before the client hears of its new timeout. Keep them the
//     same on all servers.
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
//	connection lost, session survives      stands                       keeps its place
//	  the same, StandardErrorPolicy        ends with ErrSuspended       keeps its place
//	no proof of life for 2/3 of T          ends with ErrSessionLost     keeps its place
//	a quorum slower than T/6, up to T/3    stands                       keeps its place
//	session expired                        ends with ErrSessionLost     joins again at the tail
//	own znode deleted by someone           ends with ErrNodeDeleted     joins again at the tail
//	Client.Close                           ends with ErrClosed          returns ErrClosed
//	Release                                ends with ErrReleased        –
//
// T is the session timeout: the lesser of what the latest handshake has granted and what
// the session was created with. Proof of life is a write of ours that the
// quorum has committed, and nothing else: a server that is cut off from its quorum
// goes on answering pings, reads and sync. So while something is held or awaited
// the client commits an empty transaction every T/6, unless other writes flow. Every
// T/2 that checks the znodes which it watches, at the leader: no event may have told that
// one is gone, and a server that still shows it is left for another.
//
// # Concurrency
//
// All methods of Client and Lease may be called from any goroutine. Callbacks of
// the user run one at a time in order, those of a latch so for each listener, under no lock;
// a panic in one is contained and logged at Error, its stack in an attribute of its own.
// Without [WithLogger] the log is slog.Default. Close joins every goroutine that the client
// has started.
package recipes
