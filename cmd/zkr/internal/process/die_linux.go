package process

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DieOf ends this process by a signal with its default action. It returns if that is impossible, as in the first
// process of a container.
func DieOf(s unix.Signal) {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // the dump would be of the wrong process
	var byDefault [64]byte                               // a struct sigaction of zeros: SIG_DFL
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	if unix.Kill(os.Getpid(), s) == nil {
		<-time.After(maxDying)
	}
}

// maxDying is how long another thread may take to end the process.
const maxDying = time.Second
