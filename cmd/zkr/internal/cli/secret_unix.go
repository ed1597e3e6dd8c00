//go:build unix

package cli

import (
	"fmt"
	"os"
	"syscall"
)

// checkSecret returns an error if others than the owner may use a file or a named pipe. As in libpq, the group may
// read a file of root, because Kubernetes mounts secrets that way for a process with an fsGroup.
func checkSecret(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	allowed := os.FileMode(0o700)
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == 0 {
		allowed |= 0o040
	}
	if mode := info.Mode(); mode&(os.ModeType&^os.ModeNamedPipe) == 0 && mode.Perm()&^allowed != 0 {
		return fmt.Errorf("%s may be used by others than its owner (mode %04o): chmod 600 %s", path, mode.Perm(), path)
	}
	return nil
}
