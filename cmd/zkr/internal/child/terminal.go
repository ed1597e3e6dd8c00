package child

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/process"
)

// terminal is the controlling terminal; its file is nil if there is none.
//
// A command without zkr, or with flock(1), is in the process group of its script or pipeline, and shares the
// terminal with it. A command of zkr has a group of its own, so that all of it can be killed. It is given the
// terminal only if that takes it from nobody: if zkr leads its group and is alone in it, as after a shell's
// prompt. Elsewhere the group of zkr keeps the terminal: Ctrl-C and Ctrl-Z reach the script, the pipeline and
// zkr, which passes them on. A command that reads from the terminal there borrows it, from its first attempt
// on, by which the kernel stops it.
type terminal struct {
	file    *os.File
	isGiven bool // the group of a child has it, as far as is known
	isLent  bool // the child has asked for it, and others of zkr's group may want it, too
}

func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return &terminal{}
	}
	return &terminal{file: file}
}

func (t *terminal) fd() int { return int(t.file.Fd()) }

// isOurs reports whether this process is in the terminal's foreground.
func (t *terminal) isOurs() bool {
	if t.file == nil {
		return false
	}
	group, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// isToGive reports whether a child gets the terminal without asking for it.
func (t *terminal) isToGive() bool { return t.isOurs() && process.IsAloneInGroup() }

// ignoreOutputStops keeps this process from being stopped for writing to a terminal in whose background
// it is, and for taking it back. Called when the child has been executed: it would inherit that.
func (t *terminal) ignoreOutputStops() { signal.Ignore(syscall.SIGTTOU) }

// allowOutputStops is for the next child, which must not inherit what ignoreOutputStops has set for us.
func (t *terminal) allowOutputStops() { signal.Reset(syscall.SIGTTOU) }

func (t *terminal) close() {
	if t.file != nil {
		_ = t.file.Close()
	}
}

// give makes a group the foreground of the terminal.
func (t *terminal) give(group int) {
	if unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, group) == nil {
		t.isGiven = true
	}
}

// takeBack makes the group of this process the foreground again, if a child was.
func (t *terminal) takeBack() {
	if t.file == nil || !t.isGiven {
		return
	}
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, unix.Getpgrp())
	t.isGiven = false
}

// HasTerminal reports whether the group has the terminal, so that Ctrl-Z stops the group alone.
func (c *Child) HasTerminal() bool { return c.terminal.isGiven }

// IsInBackground reports whether there is a terminal, in whose background this process is.
func (c *Child) IsInBackground() bool { return c.terminal.file != nil && !c.terminal.isOurs() }

// Lend gives the terminal to the group, which has stopped because it wants the terminal, and continues the group.
// It does nothing unless this process is in the foreground.
func (c *Child) Lend() {
	if !c.terminal.isOurs() || isBackgroundJob() {
		return
	}
	c.terminal.isLent = true
	c.terminal.give(c.pid)
	c.Signal(syscall.SIGCONT)
}

// isBackgroundJob reports whether a script has started this process with "&": in its group, without SIGINT. Such
// a process must not take the terminal from the script.
func isBackgroundJob() bool { return signal.Ignored(syscall.SIGINT) }

// StopSelf stops this process, after which the shell has the terminal. It returns when the process continues. The
// group, which has to be stopped by then, is not continued. If the terminal's stop signal has reached the group
// alone, it is passed on to the others of this process's group; a signal of 0 is none.
//
// Where no shell would continue this process, StopSelf returns false at once, because the kernel disregards the
// terminal's signals there.
func (c *Child) StopSelf(passedOn syscall.Signal) (hasStopped bool) {
	if passedOn != 0 && process.IsOrphanedGroup() {
		return false
	}
	c.terminal.takeBack()
	if passedOn != 0 {
		process.SignalMates(passedOn)
	}
	return unix.Kill(os.Getpid(), unix.SIGSTOP) == nil
}

// Continue gives the terminal to the group, if this process is in its foreground, and continues it.
func (c *Child) Continue() {
	t := c.terminal
	if t.isToGive() || t.isLent && t.isOurs() {
		t.give(c.pid)
	}
	c.Signal(syscall.SIGCONT)
}

// endLoan passes on to the others of this process's group what they have missed while the terminal was lent: the
// signal of the keyboard that the command has died of. It continues those that wanted the terminal meanwhile.
func (c *Child) endLoan(status syscall.WaitStatus) {
	if !c.terminal.isLent {
		return
	}
	if status.Signaled() && (status.Signal() == syscall.SIGINT || status.Signal() == syscall.SIGQUIT) {
		process.SignalMates(status.Signal())
	}
	process.SignalMates(syscall.SIGCONT)
}
