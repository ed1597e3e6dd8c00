// Package permits is a semaphore on two queues. A contender that is first in the queue of the turn takes its permits in the
// other queue.
//
// # Promises
//
//   - The n contenders with the lowest numbers in Pool.Taken hold the permits, even if a client is wrong about the turn.
//   - Permits are granted in the order of the requests. A request for many permits is not overtaken by a later one for few.
//   - An Acquire gets all the permits that the caller asks for, or none. One transaction creates them and deletes the znode of the
//     turn. Permits for which it has no room are created before, in the same turn. The znodes of a failed attempt are deleted,
//     or the session deletes them in the background.
//   - The bytes of all the permits and of the turn are reserved before the contender joins the queue of the turn, so that
//     no holder of the turn waits for bytes.
//
// # Concurrency
//
// A Pool is immutable, and all its methods may be called concurrently. No lock is held over a request.
//
// # Source
//
// The two directories are those of Curator's InterProcessSemaphoreV2.
package permits
