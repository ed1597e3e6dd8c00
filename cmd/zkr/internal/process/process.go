// Package process finds and kills the processes of a child, by what Linux shows of them in /proc.
package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

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
		pids := Tagged(tag)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // fails if it has just ended
		}
	}
}

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

// Tagged returns the living processes, but not this one, whose environment has tag, a NAME=value. Of
// processes of other users it can't tell.
func Tagged(tag string) (pids []int) {
	self := os.Getpid()
	for _, pid := range list() {
		if pid == self || !hasInEnvironment(pid, tag) {
			continue
		}
		if s, ok := readStat(pid); ok && s.isAlive() {
			pids = append(pids, pid)
		}
	}
	return pids
}

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
	state string
	group int
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
	group, err := strconv.Atoi(fields[2])
	return stat{fields[0], group}, err == nil
}
