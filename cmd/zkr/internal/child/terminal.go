//go:build linux

package child

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/process"
)

// terminal is the controlling terminal. Its file is nil without a terminal.
//
// A command without zkr, or with flock(1), is in the process group of its script or pipeline, and shares their
// terminal. A command of zkr has its own group, so that zkr can kill the whole group. The command gets the terminal
// only if no other process loses the terminal by this: if zkr leads its group and is alone in the group, as after a
// shell's prompt. Otherwise zkr's group keeps the terminal: Ctrl-C and Ctrl-Z reach the script, the pipeline and zkr,
// which passes them on. A command that reads from the terminal in that case borrows the terminal, starting with the
// first attempt, for which the kernel stops the command.
type terminal struct {
	file    *os.File
	isGiven bool          // the group of a child has it, as far as is known
	isLent  bool          // borrowed by the child; others of zkr's group may want the terminal, too
	modes   *unix.Termios // from before a child got the terminal for the first time; nil before that
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

// ignoreOutputStops keeps this process from being stopped when it takes the terminal back, or writes from the
// background. Call it after the child was executed, because the child would inherit the setting.
func (t *terminal) ignoreOutputStops() { signal.Ignore(syscall.SIGTTOU) }

// allowOutputStops is for the next child, which must not inherit what ignoreOutputStops has set for us.
func (t *terminal) allowOutputStops() { signal.Reset(syscall.SIGTTOU) }

func (t *terminal) close() {
	if t.file != nil {
		_ = t.file.Close()
	}
}

// saveModes notes the modes for restoreModes, once.
func (t *terminal) saveModes() {
	if t.modes == nil {
		t.modes, _ = unix.IoctlGetTermios(t.fd(), unix.TCGETS) // on failure, the terminal stays unchanged
	}
}

// restoreModes undoes the changes of a killed child to the terminal, unless another job owns the terminal by now.
func (t *terminal) restoreModes() {
	if t.modes != nil && t.isOurs() {
		_ = unix.IoctlSetTermios(t.fd(), unix.TCSETS, t.modes) // the terminal may be closed
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

// HasControllingTerminal reports whether this process has a terminal, whose keys send signals.
func (c *Child) HasControllingTerminal() bool { return c.terminal.file != nil }

// IsInBackground reports whether this process is in the background of a terminal.
func (c *Child) IsInBackground() bool { return c.terminal.file != nil && !c.terminal.isOurs() }

// Lend gives the terminal to the group, which is stopped because it wants the terminal, and continues the group. It
// does nothing unless this process is in the foreground.
func (c *Child) Lend() {
	if !c.terminal.isOurs() || isBackgroundJob() {
		return
	}
	c.terminal.isLent = true
	c.terminal.saveModes()
	c.terminal.give(c.pid)
	c.Signal(syscall.SIGCONT)
}

// isBackgroundJob reports whether a script started this process with "&", in its group and without SIGINT. Such a
// process must not take the terminal from the script.
func isBackgroundJob() bool { return signal.Ignored(syscall.SIGINT) }

// StopSelf stops this process, so that the shell gets the terminal, and returns when the process is continued. The
// group has to be stopped before, and StopSelf does not continue the group. If the terminal's stop signal reached
// only the group, StopSelf passes the signal on to the other processes of zkr's group; a signal of 0 means none.
//
// If no shell would continue this process, the kernel disregards the terminal's signals, and StopSelf returns false
// at once.
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

// Continue continues the group, which gets the terminal if this process is in the foreground.
func (c *Child) Continue() {
	t := c.terminal
	if t.isToGive() || t.isLent && t.isOurs() {
		t.give(c.pid)
	}
	c.Signal(syscall.SIGCONT)
}

// endLoan passes on to the other processes of zkr's group the keyboard signal that killed the command while it had
// the terminal. It continues the processes that wanted the terminal meanwhile.
func (c *Child) endLoan(status syscall.WaitStatus) {
	if !c.terminal.isLent {
		return
	}
	if status.Signaled() && (status.Signal() == syscall.SIGINT || status.Signal() == syscall.SIGQUIT) {
		process.SignalMates(status.Signal())
	}
	process.SignalMates(syscall.SIGCONT)
}
