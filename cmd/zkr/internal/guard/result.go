// Package guard runs a command under a lease. The command's group never outlives the lease.
//
// Both this process and the watchdog know until when the lease is trusted without another answer of the servers. The
// group gets SIGTERM a grace before that moment, and SIGKILL at that moment. The next contender is granted later, as
// internal/zkutil/core/derivation.md shows.
package guard

import "syscall"

// Result is how it ended.
type Result struct {
	Status      syscall.WaitStatus // of the command
	IsLost      bool               // the lease was lost before the whole group ended
	IsRevoked   bool               // a peer asked for the lease
	WasToldToGo bool               // a signal that ends programs was passed on
}
