//go:build linux

package main_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestForeignExecutablesAreRefusedBeforeTheLock requires that zkr finds what the kernel would refuse before it
// contacts a server.
func TestForeignExecutablesAreRefusedBeforeTheLock(t *testing.T) {
	w := newWorld(t)
	requests := w.server.Observe()
	defer requests.Stop()
	program, err := os.ReadFile(binary)
	require.NoError(t, err)
	program[18], program[19] = 0x2a, 0x00 // the machine in its header: SuperH
	files := map[string]struct{ content, want string }{
		"crlf":        {"#!/bin/sh\r\necho ran > ran\r\n", "CR LF"},
		"crlf-env":    {"#!/usr/bin/env sh\r\necho ran > ran\r\n", "CR LF"},
		"machine":     {string(program), "built for EM_SH"},
		"truncated":   {string(program[:32]), "exec format error"},
		"interpreter": {"#!./machine\n", "exec format error"},
	}
	for name, file := range files {
		require.NoError(t, os.WriteFile(w.file(name), []byte(file.content), 0o700)) //nolint:gosec // it is to be executed
	}
	for name, file := range files {
		got := w.run("lock", "/l", "--", "./"+name)
		require.Equal(t, 126, got.code, "%s: %s", name, got.stderr)
		require.Contains(t, got.stderr, file.want)
		require.Equal(t, 1, strings.Count(got.stderr, "\n"))
	}
	require.Zero(t, requests.Count())
	require.NoFileExists(t, w.file("ran"))
}

// TestCommandRunsOnce requires that the check for an executable file does not execute it.
func TestCommandRunsOnce(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, os.WriteFile(w.file("script"), []byte("#!/bin/sh\necho run >> runs\n"), 0o700)) //nolint:gosec // a script
	require.Equal(t, 0, w.run("lock", "/l", "--", "./script").code)
	require.Equal(t, []string{"run"}, w.lines("runs"))
}

// TestFullDiskIsNotAMissingServer requires a separate exit code for output that can't be written.
func TestFullDiskIsNotAMissingServer(t *testing.T) {
	w := newWorld(t)
	w.seedHolder("/l", "ann")
	for _, args := range [][]string{{"ls", "/l"}, {"ls", "-o", "json", "/l"}, {"elect", "-l", "/l"}, {"top", "/"}, {"version"}, {"revoke", "/l"}, {"doctor"}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		r := w.startWith(func(c *exec.Cmd) { c.Stdout = full }, args...)
		require.Equal(t, 71, r.code(), "%v: %s", args, r.stderr.String())
		require.Contains(t, r.stderr.String(), "no space left on device")
		require.NoError(t, full.Close())
	}
}

// TestNestedLockOnTheSamePath requires an error instead of a deadlock. An inner zkr acquires other locks as usual.
func TestNestedLockOnTheSamePath(t *testing.T) {
	w := newWorld(t)
	inner := func(args ...string) []string {
		return append([]string{"lock", "--namespace", "team", "/l", "--", binary}, args...)
	}
	for name, args := range map[string][]string{
		"the same":    inner("lock", "--namespace", "team", "/l", "--", "true"),
		"below":       inner("lock", "--namespace", "", "/team/l", "--", "true"),
		"at the root": {"lock", "/", "--", binary, "lock", "-w", "5s", "/", "--", "true"},
		"the permit":  {"lock", "--permits", "1", "/s", "--", binary, "lock", "--permits", "1", "-w", "5s", "/s", "--", "true"},
		"elect":       inner("elect", "--namespace", "team", "/l", "--", "true"),
		"in a middle": inner("lock", "--namespace", "team", "/m", "--", binary, "lock", "--namespace", "team", "/l", "--", "true"),
	} {
		got := w.run(args...)
		require.Equal(t, 64, got.code, "%s: %s", name, got.stderr)
		require.Contains(t, got.stderr, "is held by the zkr that started this one", name)
	}
	got := w.run("lock", "--shared", "/r", "--", binary, "lock", "--shared", "/r", "--", "true")
	require.Equal(t, 64, got.code)
	require.Contains(t, got.stderr, "is held with --shared by the zkr that started this one; with a writer queued in between, each would wait for the other")
	for _, sides := range [][2]string{{"--shared", "--write"}, {"--write", "--shared"}} {
		require.Contains(t, w.run("lock", sides[0], "/r", "--", binary, "lock", sides[1], "/r", "--", "true").stderr, "waiting for it would deadlock")
	}
	require.Equal(t, 0, w.run(inner("lock", "--namespace", "other", "/l", "--", "true")...).code)
	require.Equal(t, 0, w.run("lock", "--permits", "2", "/s", "--", binary, "lock", "--permits", "2", "/s", "--", "true").code)
	w.env = append(w.env, "ZKR_LOCK_PATH=/l", "ZKR_LOCK_ZNODE=/l/_c_gone-lock-0000000001", "ZKR_FENCING_TOKEN=7")
	require.Equal(t, 0, w.run("lock", "/l", "--", "true").code, "the outer one has ended")
}

// startAsFirstProcess starts zkr as the first process of a PID namespace, as in a container: whose orphans end up as its own. A
// script runs before it, and has the arguments.
func (w *world) startAsFirstProcess(script string, args ...string) *run {
	w.Helper()
	return w.startWith(func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
		c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", "mount -t proc proc /proc; " + script + ` exec "$@"`, "sh", binary}, args...)
	})
}

// orphans starts processes whose parents end first. awaitReaped waits until all ended processes are reaped.
const (
	orphans     = "for i in 1 2 3 4 5; do (sh -c 'sleep 0.05 & sleep 0.05 & exit' &); done; sleep 0.3\n"
	awaitReaped = `for i in $(seq 200); do
	grep -ls '^State:.*zombie' /proc/[0-9]*/status || { echo reaped > reaped; break; }
	sleep 0.05
done`
)

func TestFirstProcessReapsOrphans(t *testing.T) {
	w := newWorld(t)
	r := w.startAsFirstProcess("", "lock", "/l", "--", "sh", "-c", orphans+awaitReaped+"\nkill -KILL $$")
	require.Equal(t, 128+9, r.code(), r.stderr.String())
	require.FileExists(t, w.file("reaped"), r.stdout.String())
}

// TestFirstProcessReapsOrphansWhileItWaits for the lock, and before that for the servers.
func TestFirstProcessReapsOrphansWhileItWaits(t *testing.T) {
	script := "(sleep 0.2; " + orphans + awaitReaped + ") &"
	t.Run("for the lock", func(t *testing.T) {
		w := newWorld(t)
		lease := w.hold("/l", "other")
		r := w.startAsFirstProcess(script, "lock", "/l", "--", "true")
		w.content("reaped")
		require.NoError(t, lease.Release())
		require.Equal(t, 0, r.code(), r.stderr.String())
	})
	t.Run("for the servers", func(t *testing.T) {
		w := newWorld(t)
		w.server.Freeze()
		w.startAsFirstProcess(script, "lock", "-w", "100", "/l", "--", "true")
		w.content("reaped")
	})
}
