//go:build unix

package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// IsOrphanedGroup reports whether the parent of this process, which leads its group, belongs to another session. In
// that case no shell would continue the process after a stop.
func IsOrphanedGroup() bool {
	if unix.Getpgrp() != os.Getpid() {
		return false
	}
	own, _ := unix.Getsid(0)
	parents, err := unix.Getsid(os.Getppid())
	return err != nil || own != parents
}
