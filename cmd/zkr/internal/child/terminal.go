package child

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal; its file is nil if there is none.
type terminal struct {
	file    *os.File
	isGiven bool // the group of a child has it, as far as we know
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

// HasTerminal reports whether there is a controlling terminal: a command that stops is then a job of a
// shell, which has to see that this process stops as well.
func (c *Child) HasTerminal() bool { return c.terminal.file != nil }
