//go:build linux

package main_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// statOf returns the fields of /proc/PID/stat behind the name: state, parent, group, …
func statOf(pid int) []string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return []string{"X", "0", "0"}
	}
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}

func state(pid int) string { return statOf(pid)[0] }

// isAlive reports whether a process lives. A zombie does not.
func isAlive(pid int) bool { s := state(pid); return s != "Z" && s != "X" }

// name is the name of a process.
func name(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(text))
}

// processes are all processes.
func processes() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// watchdogOf returns zkr's child in its own session, or 0.
func watchdogOf(zkr int) int {
	for _, pid := range processes() {
		stat := statOf(pid)
		if len(stat) > 3 && stat[0] != "Z" && stat[1] == strconv.Itoa(zkr) && stat[3] == strconv.Itoa(pid) {
			return pid
		}
	}
	return 0
}

// descendantsOf returns the children of a process and theirs.
func descendantsOf(parent int) (pids []int) {
	for _, pid := range processes() {
		if statOf(pid)[1] == strconv.Itoa(parent) {
			pids = append(append(pids, pid), descendantsOf(pid)...)
		}
	}
	return pids
}

func atoi(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return n
}

// lines are the whole lines of a file, none if it is missing.
func (w *world) lines(name string) []string {
	content, _ := os.ReadFile(w.file(name))
	lines := strings.Split(string(content), "\n")
	return lines[:len(lines)-1]
}

// awaitHeartbeats waits until a holder sent n heartbeats, at most T/6 apart.
func awaitHeartbeats(t *testing.T, log *zktest.Log, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return log.Count(zktest.OpMulti) >= n }, time.Minute, 10*time.Millisecond)
}
