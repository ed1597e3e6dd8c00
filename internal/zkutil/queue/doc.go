// Package queue is the queue of ephemeral-sequential znodes under every recipe.
//
// A [Queue] is a directory. Each [Contender] is a znode in it, to whose name the server has
// appended a number; the order of the numbers is the order of the queue. A [Rule] decides which
// predecessor a contender waits for: for a mutex, the one directly ahead. A contender that waits
// for nobody becomes a hold of its session.
//
// # Promises
//
//   - Order: holds are granted in the order of the numbers, as far as the rule asks for it.
//   - No herd: a waiter watches the one znode that it waits for, and its own: at once if it is next, else later.
//     One deletion wakes one waiter, whatever the length of the queue.
//   - No ghost: a call that fails has deleted its znode, or the session deletes it in the
//     background until that is confirmed.
//   - No stale grant: the session grants a hold in one step, which fails with ErrStale if anything
//     may have changed since the queue was read. Then the waiter reads again.
//   - A waiter whose znode is gone, with its session or by somebody's deletion, joins again at the
//     tail, under the retry policy. A disconnect alone does not cost the position in the queue.
//
// A contender can also get the number of a hold, see Queue.AcquireUnder. Queues in which this happens
// have AlwaysList: there a waiter lists the queue again when its predecessor has gone.
//
// [Permits] are two queues: whoever is first in the one takes its permits in the other.
//
// A [Cohort] is one contender for many callers of a session. Its hold has parts, which the callers get one
// after the other; tenure.go says when the hold ends instead.
//
// # Elections
//
// A [Candidate] takes part in an election: from Start to Stop it has one term of leadership after
// the other, each a hold. It goes on without a server and after refusals. The znode of a term stays
// until Candidate.Vacate, which comes after the leader's work: so no successor leads beside it.
//
// # Concurrency
//
// A Queue is immutable, and all its methods may be called concurrently. Each call that waits has a
// waiter of its own, which one goroutine uses. Candidate.mu protects the state of a candidate; it
// is never held over a request or over user code. No function here holds Session.mu.
//
// # Source
//
// The algorithm is that of ZooKeeper's lock recipe and of Curator's LockInternals, and so are the
// names of the znodes: "_c_<uuid>-lock-<number>". Five things differ from Curator. The znode is
// created and the queue read in one round trip, because a server answers the requests of a session in their
// order; a session that was alone with its lock for a while does not read it at all, see session/alone.go. A revocation
// that comes before the grant is told at the grant or, like the deletion of the znode by
// somebody else, within 10 ms of it on a quick line: see ownnode.go. A second znode of one create, which the server
// has executed twice, is found by its uuid and deleted. When the only znode ahead has been
// deleted, its waiter is granted without another look at the queue. And in a long queue a waiter asks for the few znodes
// that may be left ahead, if its session has held the lock shortly before: see between.go.
package queue
