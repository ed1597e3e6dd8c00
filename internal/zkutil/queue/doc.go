// Package queue is the queue of ephemeral-sequential znodes under every recipe.
//
// A [Queue] is a directory. Each [Contender] is a znode in it, to whose name the server has
// appended a number; the order of the numbers is the order of the queue. A [Rule] decides which
// predecessor a contender waits for: in a mutex, the contender directly ahead. A contender without such a
// predecessor becomes a hold of its session.
//
// # Promises
//
//   - Order: holds are granted in the order of the numbers, as far as the rule requires.
//   - No herd: a waiter watches the znode of its predecessor and its own znode: the latter immediately if the waiter is
//     next, else later. A deletion wakes a single waiter, whatever the length of the queue.
//   - No leftovers: a call that fails has deleted its znode, or the session deletes the znode in the
//     background until the deletion is confirmed.
//   - No stale grant: the session grants a hold in a single step, which fails with ErrStale if anything
//     may have changed since the queue was read. Then the waiter reads again.
//   - A waiter whose znode is gone, with its session or by somebody's deletion, joins again at the
//     tail, under the retry policy. A disconnect alone does not cost the position in the queue.
//
// A contender can also get the number of a hold, see Queue.AcquireUnder. Such queues have
// AlwaysList: their waiters list the queue again when the predecessor has gone.
//
// # Packages above
//
// Packages election, permits and cohort make attempts of their own. A place in the budget of the session comes first
// (TakePlace). JoinAndWait makes one attempt with that place, AcquireInPlace repeats attempts until one succeeds, and Resume
// goes on with a znode that the session has had before. A [WaitStatus] collects the facts about a wait for errors, traces and
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
//   - The holder learns of a revocation from before the grant at the grant, or within 10 ms of the grant on a quick line.
//     The same holds for the deletion of the znode by somebody else. See ownnode.go.
//   - A second znode, of a create that was sent again and then executed twice, is found by its uuid and deleted.
//   - When the only znode ahead has been deleted, its waiter is granted without another look at the queue.
package queue
