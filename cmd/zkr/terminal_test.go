//go:build linux

package main_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal. Text written to the master is typed.
type terminal struct {
	*world
	master, slave *os.File
	screen        *buffer
}

// newTerminal makes a terminal. No process on the terminal outlives the test.
func newTerminal(w *world) *terminal {
	w.Helper()
	blocking, slave, err := pty.Open()
	require.NoError(w, err)
	t := &terminal{w, unblock(w, blocking), slave, &buffer{}}
	isRead := make(chan struct{})
	go func() { // ends when the master is closed, also while processes have the terminal
		defer close(isRead)
		_, _ = io.Copy(t.screen, t.master)
	}()
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("screen: %q", t.screen.String())
		}
		t.killUsers()
		require.NoError(w, slave.Close())
		require.NoError(w, t.master.Close())
		<-isRead
	})
	return t
}

// unblock replaces a file by another one whose Close ends its reads, because pty.Open makes files that block.
func unblock(w *world, blocking *os.File) *os.File {
	w.Helper()
	fd, err := unix.FcntlInt(blocking.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(w, err)
	require.NoError(w, blocking.Close())
	require.NoError(w, unix.SetNonblock(fd, true))
	return os.NewFile(uintptr(fd), blocking.Name())
}

// users are the processes with the terminal open, except this process and its forks for other tests, which have all
// files open until they execute a program.
func (t *terminal) users() (pids []int) {
	t.Helper()
	test, err := os.Stat("/proc/self/exe")
	require.NoError(t, err)
	tty, err := t.slave.Stat()
	require.NoError(t, err)
	processes, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, process := range processes {
		program, err := os.Stat(process + "/exe") // read before its files, which are closed when it executes a program
		if err != nil || os.SameFile(program, test) {
			continue
		}
		open, err := filepath.Glob(process + "/fd/*")
		require.NoError(t, err)
		if slices.ContainsFunc(open, func(fd string) bool { return isOpen(fd, t.slave.Name(), tty) }) {
			pid, err := strconv.Atoi(filepath.Base(process))
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// isOpen reports whether a descriptor below /proc is of a file. A container may have another file with this name.
func isOpen(fd, name string, want os.FileInfo) bool {
	if to, err := os.Readlink(fd); err != nil || to != name {
		return false
	}
	file, err := os.Stat(fd)
	return err == nil && os.SameFile(file, want)
}

// killUsers ends the processes with the terminal open, and those that they start meanwhile.
func (t *terminal) killUsers() {
	t.Helper()
	t.eventually(func() bool {
		pids := t.users()
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(pids) == 0
	}, "nobody has the terminal")
}

// start starts zkr as the leader of a session with this terminal.
func (t *terminal) start(args ...string) *run {
	t.Helper()
	return t.startWith(t.attach, args...)
}

func (t *terminal) attach(c *exec.Cmd) {
	c.Stdin, c.Stdout, c.Stderr = t.slave, t.slave, t.slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
}

func (t *terminal) types(text string) {
	t.Helper()
	_, err := t.master.WriteString(text)
	require.NoError(t, err)
}

// foreground is the group that has the terminal. The session's processes may ask, and the test by the master.
func (t *terminal) foreground() (group int) {
	master, err := t.master.SyscallConn() // Fd would make the file block
	require.NoError(t, err)
	require.NoError(t, master.Control(func(fd uintptr) {
		if group, err = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP); err != nil {
			group = 0
		}
	}))
	return group
}

// The command's group has the terminal, so the command can read, and only the group gets Ctrl-C.
func TestCommandHasTheTerminal(t *testing.T) {
	w := newTerminal(newWorld(t))
	r := w.start("lock", "/l", "--", "sh", "-c", `echo $$ > parent; read line; echo "$line" > line; trap 'echo > int; exit 4' INT; echo > ready; while :; do sleep 0.02; done`)
	pid := w.pid("parent")
	require.Equal(t, pid, w.foreground())
	w.types("typed\n")
	require.Equal(t, "typed", w.content("line"))
	w.content("ready")
	w.types("\x03")
	require.Equal(t, 4, r.code())
	require.FileExists(t, w.file("int"))
}

// Ctrl-Z stops the group and zkr, and the shell has the terminal. fg gives it to the group again.
func TestCtrlZ(t *testing.T) {
	w := newTerminal(newWorld(t))
	r := w.startWith(func(c *exec.Cmd) {
		w.attach(c)
		c.Path, c.Args = "/bin/sh", []string{
			"sh", "-c", `set -m; "$@"; while read x; do fg > /dev/null; done`, "sh", binary, "lock", "/l", "--",
			"sh", "-c", `echo $PPID > zkr; echo $$ > parent; exec sleep 100`, // a shell does not stop right after vfork
		}
	})
	w.eventually(func() bool { return name(w.pid("parent")) == "sleep" }, "it sleeps")
	pid, zkr := w.pid("parent"), w.pid("zkr")
	for range 20 {
		w.types("\x1a")
		w.eventually(func() bool { return state(pid) == "T" && state(zkr) == "T" && w.foreground() == r.cmd.Process.Pid }, "stopped")
		w.types("\n")
		w.eventually(func() bool { return state(pid) != "T" && state(zkr) != "T" && w.foreground() == pid }, "continued")
	}
	require.NoError(t, syscall.Kill(zkr, syscall.SIGTERM))
	w.awaitDead(pid, zkr)
}

// TestCtrlZWithoutAShell has no shell that could continue anything, as in a container: nothing stops.
func TestCtrlZWithoutAShell(t *testing.T) {
	w := newTerminal(newWorld(t))
	r := w.start("lock", "/l", "--", "sh", "-c", `echo $$ > parent; read line; echo "$line" > line; exit 3`)
	w.pid("parent")
	w.types("\x1a")
	w.types("typed\n")
	require.Equal(t, 3, r.code())
	require.Equal(t, "typed", w.content("line"))
}

// After the command the terminal belongs to the shell again.
func TestTerminalIsGivenBack(t *testing.T) {
	w := newTerminal(newWorld(t))
	r := w.startWith(func(c *exec.Cmd) {
		w.attach(c)
		c.Path, c.Args = "/bin/sh", []string{"sh", "-c", `set -m; "$@"; echo $? > code; read line; echo "$line" > line; exit`, "sh", binary, "lock", "/l", "--", "sh", "-c", "exit 3"}
	})
	require.Equal(t, "3", w.content("code"))
	w.types("after\n")
	require.Equal(t, "after", strings.TrimSpace(w.content("line")))
	r.await()
}

// A zkr in the background does not take the terminal.
func TestBackgroundDoesNotTakeTheTerminal(t *testing.T) {
	w := newTerminal(newWorld(t))
	r := w.startWith(func(c *exec.Cmd) {
		w.attach(c)
		c.Path, c.Args = "/bin/sh", []string{
			"sh", "-c", `set -m; "$@" & echo $! > zkr; read line; echo "$line" > line; wait; exit`, "sh", binary, "lock", "/l", "--",
			"sh", "-c", "echo > ready; while [ ! -e go ]; do sleep 0.02; done",
		}
	})
	w.content("ready")
	require.Equal(t, r.cmd.Process.Pid, w.foreground())
	w.types("shell\n")
	require.Equal(t, "shell", w.content("line"))
	require.NoError(t, os.WriteFile(w.file("go"), nil, 0o600))
	r.await()
}

// modes are those of the terminal.
func (t *terminal) modes() unix.Termios {
	t.Helper()
	modes, err := unix.IoctlGetTermios(int(t.slave.Fd()), unix.TCGETS)
	require.NoError(t, err)
	return *modes
}

// resize gives the terminal another size.
func (t *terminal) resize() {
	t.Helper()
	require.NoError(t, pty.Setsize(t.slave, &pty.Winsize{Rows: 33, Cols: 77}))
}

// TestRawTerminalOfAKilledCommand requires restored modes after a command that was killed by a signal or for a lost lock. Modes
// left by a command that ended by itself are intended.
func TestRawTerminalOfAKilledCommand(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		code   string
		isRaw  bool
	}{
		"lost":      {"trap '' TERM; while :; do sleep 0.02; done", "74", false},
		"in order":  {"trap 'exit 7' TERM; while :; do sleep 0.02; done", "74", false},
		"signalled": {"kill -KILL $$", "137", false},
		"by itself": {"exit 3", "3", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTerminal(newWorld(t))
			before := w.modes()
			r := w.startWith(func(c *exec.Cmd) {
				w.attach(c)
				c.Path, c.Args = "/bin/sh", []string{
					"sh", "-c", `set -m; "$@"; echo $? > code; while [ ! -e go ]; do sleep 0.02; done; exit`, "sh", binary, "lock", "--grace", "100ms", "/l", "--",
					"sh", "-c", "stty raw -echo; echo > raw; " + test.script,
				}
			})
			w.content("raw")
			if test.code == "74" {
				require.NotEqual(t, before, w.modes())
				w.server.Delete(w.awaitContenders("/l", 1)[0])
			}
			require.Equal(t, test.code, w.content("code"))
			require.Equal(t, test.isRaw, before != w.modes())
			require.NoError(t, os.WriteFile(w.file("go"), nil, 0o600))
			r.await()
		})
	}
}

// TestTerminalOutlivedByAProcess ends the terminal, and requires the end of the process.
func TestTerminalOutlivedByAProcess(t *testing.T) {
	var pid int
	t.Run("terminal", func(t *testing.T) {
		w := newTerminal(newLoneWorld(t))
		r := w.startWith(func(c *exec.Cmd) {
			w.attach(c)
			c.Path, c.Args = "/bin/sh", []string{"sh", "-c", `trap "" HUP; sleep 1000 & echo $! > pid`}
		})
		r.await()
		pid = w.pid("pid")
		require.True(t, isAlive(pid))
	})
	require.False(t, isAlive(pid))
}
