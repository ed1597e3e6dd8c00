// Package process finds and kills the processes of a child, by what Linux shows of them in /proc.
package process

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sweepTime bounds how long KillAll looks for processes that have left the group.
const sweepTime = time.Second

// KillAll kills a process group, and the processes outside it whose environment has tag. Those have
// left the group, as the command timeout does. group 0 is none.
func KillAll(group int, tag string) {
	if group > 1 {
		_ = unix.Kill(-group, unix.SIGKILL) // fails if nobody is left
	}
	if tag == "" {
		return
	}
	for began := time.Now(); time.Since(began) < sweepTime; {
		if !SignalTagged(0, tag, unix.SIGKILL) {
			return
		}
	}
}

// SignalTagged sends a signal to each living process outside a group whose environment has tag, and reports
// whether there was one. A group of 0 is none.
func SignalTagged(group int, tag string, s unix.Signal) (isAny bool) {
	for _, pid := range tagged(group, tag) {
		isAny = true
		_ = unix.Kill(pid, s) // fails if it has just ended
	}
	return isAny
}

// IsTaggedAlive reports whether a process outside a group lives whose environment has tag.
func IsTaggedAlive(group int, tag string) bool { return len(tagged(group, tag)) > 0 }

// IsGroupAlive reports whether a process of the group lives. A zombie does not.
func IsGroupAlive(group int) bool {
	if unix.Kill(-group, 0) == unix.ESRCH {
		return false
	}
	for _, pid := range list() {
		if s, ok := readStat(pid); ok && s.group == group && s.isAlive() {
			return true
		}
	}
	return false
}

// IsAlive reports whether a process lives. A zombie does not.
func IsAlive(pid int) bool {
	s, ok := readStat(pid)
	return ok && s.isAlive()
}

// IsStopped reports whether a process was stopped by a signal and not continued.
func IsStopped(pid int) bool {
	s, ok := readStat(pid)
	return ok && s.state == "T"
}

// tagged returns the living processes outside a group, but not this one, whose environment has tag, a
// NAME=value. The environment of another user's process can't be read, so such a process is missing.
func tagged(group int, tag string) (pids []int) {
	self := os.Getpid()
	for _, pid := range list() {
		if pid == self || !hasInEnvironment(pid, tag) {
			continue
		}
		if s, ok := readStat(pid); ok && s.isAlive() && (group == 0 || s.group != group) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// IsAloneInGroup reports whether this process leads its process group and nobody else lives in it.
func IsAloneInGroup() bool { return unix.Getpgrp() == os.Getpid() && len(mates()) == 0 }

// SignalMates sends a signal to the other processes of this process's group.
func SignalMates(s unix.Signal) {
	for _, pid := range mates() {
		_ = unix.Kill(pid, s) // fails if it has just ended
	}
}

// mates returns the other living processes of this process's group.
func mates() (pids []int) {
	self, group := os.Getpid(), unix.Getpgrp()
	for _, pid := range list() {
		if s, ok := readStat(pid); ok && pid != self && s.group == group && s.isAlive() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// IsOrphanedGroup reports whether the parent of this process, which leads its group, belongs to another session:
// then no shell would continue it after a stop.
func IsOrphanedGroup() bool {
	if unix.Getpgrp() != os.Getpid() {
		return false
	}
	own, _ := unix.Getsid(0)
	parents, err := unix.Getsid(os.Getppid())
	return err != nil || own != parents
}

// ReapOrphans collects the ended children of this process that it has not started itself, of which only the first
// process of a container has any. Known are those that it has started.
func ReapOrphans(known ...int) {
	if os.Getpid() != 1 {
		return
	}
	for _, pid := range list() {
		if s, ok := readStat(pid); ok && s.state == "Z" && s.parent == 1 && !slices.Contains(known, pid) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // its code interests nobody
		}
	}
}

// DieOf ends this process by a signal, as if nobody had caught it. It returns if that is not possible, as in the
// first process of a container.
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

func hasInEnvironment(pid int, tag string) bool {
	environment, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	return err == nil && (bytes.HasPrefix(environment, []byte(tag+"\x00")) || bytes.Contains(environment, []byte("\x00"+tag+"\x00")))
}

func list() (pids []int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stat is the part of /proc/PID/stat that is needed here.
type stat struct {
	state  string
	parent int
	group  int
}

func (s stat) isAlive() bool { return s.state != "Z" && s.state != "X" }

func readStat(pid int) (stat, bool) {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, false
	}
	// The name of the command, in parentheses, may contain anything.
	fields := strings.Fields(string(line[bytes.LastIndexByte(line, ')')+1:]))
	if len(fields) < 3 {
		return stat{}, false
	}
	parent, _ := strconv.Atoi(fields[1]) // the kernel writes numbers
	group, err := strconv.Atoi(fields[2])
	return stat{fields[0], parent, group}, err == nil
}
