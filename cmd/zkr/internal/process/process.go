//go:build linux

// Package process finds and kills the processes of a child, by reading /proc on Linux.
package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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

// IsAloneInGroup reports whether this process leads its process group and is its only living member.
func IsAloneInGroup() bool { return unix.Getpgrp() == os.Getpid() && len(mates()) == 0 }

// SignalMates sends a signal to the other processes of this process's group.
func SignalMates(s unix.Signal) {
	for _, pid := range mates() {
		_ = unix.Kill(pid, s) // fails if the process is dead
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
	start  uint64
}

func (s stat) isAlive() bool { return s.state != "Z" && s.state != "X" }

func readStat(pid int) (stat, bool) {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, false
	}
	// The name of the command, in parentheses, may contain anything.
	fields := strings.Fields(string(line[bytes.LastIndexByte(line, ')')+1:]))
	const start = 19 // see proc_pid_stat(5), which counts from the pid
	if len(fields) <= start {
		return stat{}, false
	}
	s := stat{state: fields[0]}
	s.parent, _ = strconv.Atoi(fields[1]) // the kernel writes numbers
	s.group, _ = strconv.Atoi(fields[2])
	s.start, _ = strconv.ParseUint(fields[start], 10, 64)
	return s, true
}
