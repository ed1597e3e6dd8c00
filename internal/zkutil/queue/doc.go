// Package queue is the queue of ephemeral-sequential znodes under every recipe.
//
// A [Queue] is a directory. Each [Contender] is a znode in it whose name ends in a number that the server appended. The
// order of the numbers is the order of the queue. A [Rule] decides which predecessor a contender waits for: in a mutex,
// the contender directly ahead. A contender without such a predecessor becomes a hold of its session.
//
// # Promises
//
//   - Order. Holds are granted in the order of the numbers, as far as the rule requires.
//   - No herd. A waiter watches the znode of its predecessor, and its own znode immediately if it is next, else later.
//     A deletion wakes a single waiter, however long the queue is.
//   - No leftovers. The znode of a failed call is deleted. The session repeats the deletion in the background until it
//     is confirmed.
//   - No stale grant. The session grants a hold in a single step, which fails with ErrStale if anything may have
//     changed since the waiter read the queue. Then the waiter reads again.
//   - Rejoin. A waiter whose znode is deleted, by another client or with its session, joins again at the tail, under
//     the retry policy. A disconnect alone does not cost the position in the queue.
//
// A contender can also get the number of a hold (Queue.AcquireUnder). Such queues set AlwaysList, so that waiters list
// the queue again once the predecessor is deleted.
//
// # Packages above
//
// Packages election, permits and cohort make attempts of their own. Each attempt starts with a reservation in the session's budget
// (Reserve). JoinAndWait makes one attempt with that reservation, AcquireReserved repeats attempts until one succeeds, Exchange turns
// a hold of another queue into holds of this one, and Resume continues with a znode that the session created earlier. A [WaitStatus] collects the facts about a wait for errors, traces and
// warnings of slow waits. Waiters belong to this package alone.
//
// # Concurrency
//
// A Queue is immutable, and all its methods may be called concurrently. Each call that waits has a
// waiter of its own, which one goroutine uses. No function here holds Session.mu.
//
// # Source
//
// The algorithm is that of ZooKeeper's lock recipe and of Curator's LockInternals, with the same names of
// znodes: "_c_<uuid>-lock-<number>". Four things differ from Curator:
//
//   - Creating the znode and reading the queue take a single round trip, because a server answers the requests of a
//     session in their order.
//   - If another client revokes the lease or deletes the znode before the grant, the holder learns of it at the grant, or
//     within 10 ms of the grant on a quick line. See ownnode.go.
//   - A second znode, of a create that was sent again and then executed twice, is found by its uuid and deleted: whenever the
//     contender lists the queue, and once a session timeout after the create.
//   - When the only znode ahead is deleted, its waiter is granted without another look at the queue.
package queue
