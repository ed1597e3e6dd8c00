package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal: what is written to the master is typed.
type terminal struct {
	*world
	master, slave *os.File
}

func newTerminal(w *world) *terminal {
	w.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(w, err)
	require.NoError(w, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(w, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(w, err)
	w.Cleanup(func() {
		require.NoError(w, slave.Close())
		require.NoError(w, master.Close())
	})
	return &terminal{w, master, slave}
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
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(int(t.master.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// The group of the command has the terminal: it reads from it, and Ctrl-C is for it alone.
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

// Ctrl-Z stops the group and zkr, which takes the terminal back. SIGCONT, as from fg, gives it to the group again.
func TestCtrlZ(t *testing.T) {
	w := newTerminal(newWorld(t))
	r := w.start("lock", "/l", "--", "sh", "-c", `echo $$ > parent; exec sleep 100`) // a shell that has just called vfork does not stop
	w.eventually(func() bool { return name(w.pid("parent")) == "sleep" }, "it sleeps")
	pid, zkr := w.pid("parent"), r.cmd.Process.Pid
	for range 20 {
		w.types("\x1a")
		w.eventually(func() bool { return state(pid) == "T" && state(zkr) == "T" }, "stopped")
		require.Equal(t, zkr, w.foreground())
		r.signal(syscall.SIGCONT)
		w.eventually(func() bool { return state(pid) != "T" && state(zkr) != "T" && w.foreground() == pid }, "continued")
	}
	r.signal(syscall.SIGTERM)
	require.Equal(t, 128+15, r.code())
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
