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

// watchdogOf returns the child of a zkr that is in a session of its own, 0 if there is none.
func watchdogOf(zkr int) int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat := statOf(pid)
		if len(stat) > 3 && stat[0] != "Z" && stat[1] == strconv.Itoa(zkr) && stat[3] == entry.Name() {
			return pid
		}
	}
	return 0
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

// awaitHeartbeats waits until a holder has sent n heartbeats, which are T/6 apart at most.
func awaitHeartbeats(t *testing.T, log *zktest.Log, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return log.Count(zktest.OpMulti) >= n }, time.Minute, 10*time.Millisecond)
}
