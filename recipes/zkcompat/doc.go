// Package zkcompat has the lock of go-zookeeper/zk, [zk.Lock], on this library. Methods and znodes are the same, and a program
// changes one line.
//
//	lock := zk.NewLock(conn, "/locks/a", acl)         // before
//	lock := zkcompat.NewLock(client, "/locks/a", acl) // after
//
// Programs with the old lock and programs with the new one exclude each other on one path, so a service can change over by a
// rolling upgrade. Code that needs the zk.Conn for other requests takes [recipes.Client.Conn].
//
// The differences to zk.Lock:
//
//   - There is one holder. A zk.Lock whose session expired does not notice, and its program continues beside the next holder.
//     [Lock.Lost] is closed before the servers can grant the lock to another contender.
//   - No object is stuck. After an expiry, a zk.Lock can neither unlock nor lock again.
//   - No znode is left behind. A create whose answer was lost leaves a znode of zk.Lock that blocks all clients until the session
//     ends.
//   - A lost connection is no error of Lock: Lock waits until there is a server again, and keeps its place if the session survives.
//   - Errors are wrapped: compare them with errors.Is, not with ==.
//
// New code does better with package mutex: it has contexts, deadlines, fencing tokens and re-entrancy.
// docs/from-zk-lock.md shows the defects of zk.Lock in a few lines each, and the change.
//
// # Guarantees, non-guarantees, failures
//
// As of package mutex. In particular a process that was paused for longer than its session finds out only when it
// resumes. zk.Lock has no fencing tokens: use package mutex if the guarded data can check one.
//
// # On the wire
//
// The znodes are those of package mutex, ephemeral and sequential. Their data is what LockWithData got, or empty after Lock, so that
// programs that parse the data of contenders find what they expect.
//
// # Concurrency
//
// The methods of a Lock may be called concurrently, but a Lock is one contender: goroutines that exclude each other each need a Lock.
package zkcompat
