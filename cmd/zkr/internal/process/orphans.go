//go:build linux

package process

import (
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// started has the processes that this process started and waits for.
var started struct { //nolint:gochecknoglobals // the process has its children once
	sync.Mutex

	pids []int
}

// Start is os.StartProcess for all processes of this program. ReapOrphans leaves these processes to their waiters.
func Start(path string, args []string, attr *os.ProcAttr) (*os.Process, error) {
	started.Lock()
	defer started.Unlock()
	p, err := os.StartProcess(path, args, attr)
	if err == nil {
		started.pids = append(started.pids, p.Pid)
	}
	return p, err
}

// Reaped is to be called after a started process ended and was waited for.
func Reaped(pid int) {
	started.Lock()
	defer started.Unlock()
	started.pids = slices.DeleteFunc(started.pids, func(one int) bool { return one == pid })
}

var reaping sync.Once //nolint:gochecknoglobals // the process has its children once

// orphanPause is the least time between two looks for orphans.
const orphanPause = 50 * time.Millisecond

// ReapOrphans collects, from now on, children that this process did not start, after they end. They are descendants whose
// parents died first.
func ReapOrphans() {
	reaping.Do(func() {
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGCHLD)
		go reap(ended) // ends with the process
	})
}

func reap(ended <-chan os.Signal) {
	for {
		reapOrphans()
		<-time.After(orphanPause)
		<-ended
	}
}

func reapOrphans() {
	started.Lock()
	defer started.Unlock()
	for _, pid := range childrenOf(os.Getpid()) {
		if s, _ := readStat(pid); s.state == "Z" && !slices.Contains(started.pids, pid) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // its status is of no use
		}
	}
}
