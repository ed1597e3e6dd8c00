// Package child runs a command in a process group of its own, which gets the terminal.
//
// The kernel kills the command when the thread that called Start ends: so Start has to be called from
// the main thread. That covers the moment in which the watchdog does not know the group yet.
package child

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/boottime"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/process"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/watchdog"
)

// Command is what to run.
type Command struct {
	Path string   // of the file
	Args []string // with the name of the command
	Env  []string
	Tag  string // an element of Env by which its processes are known
}

// Event is a change of the command's process.
type Event struct {
	HasExited bool           // what it has started may live
	StoppedBy syscall.Signal // if it has not exited; it may have been continued since
}

// Child is a command that was started. Its methods are for one goroutine.
type Child struct {
	Events   <-chan Event
	Watchdog *watchdog.Watchdog
	pid      int
	tag      string
	terminal *terminal
}

// Start starts the command in a group of its own, guarded by a watchdog. If this process is in the
// terminal's foreground and alone in its group, the command gets the terminal. The watchdog kills the group at until, unless it is told
// another time.
func Start(cmd Command, until boottime.Time) (*Child, error) {
	dog, err := watchdog.Start()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(dog.Tag(cmd.Tag), dog.Until(until)); err != nil {
		dog.Dismiss()
		return nil, err
	}
	t := openTerminal()
	t.allowOutputStops()
	sys := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if t.isToGive() {
		sys.Foreground, sys.Ctty, t.isGiven = true, t.fd(), true
	}
	p, err := os.StartProcess(cmd.Path, cmd.Args, &os.ProcAttr{
		Env:   cmd.Env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   sys,
	})
	if err != nil {
		t.takeBack() // the group may have got it before the command could not be executed
		t.close()
		dog.Dismiss()
		return nil, err
	}
	t.ignoreOutputStops()
	c := &Child{Watchdog: dog, pid: p.Pid, tag: cmd.Tag, terminal: t}
	_ = p.Release() // waited for below
	if err := dog.Group(c.pid); err != nil {
		c.Kill()
		return nil, fmt.Errorf("watchdog: %w", err)
	}
	events := make(chan Event, 1)
	c.Events = events
	go watchProcess(c.pid, events) // ends when the command has ended
	return c, nil
}

// watchProcess sends what becomes of a process. The process is not reaped, so that its id, which is that
// of the group, is not given to another meanwhile.
func watchProcess(pid int, events chan<- Event) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			events <- Event{HasExited: true} // not our child: can't be
			return
		case info.Code == cldStopped:
			_ = unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOHANG, nil) // so that it is told once
			by := (*childInfo)(unsafe.Pointer(&info)).child.status
			events <- Event{StoppedBy: syscall.Signal(by)}
		default:
			events <- Event{HasExited: true}
			return
		}
	}
}

// cldStopped is CLD_STOPPED of siginfo.h.
const cldStopped = 5

// childInfo is the part of unix.Siginfo that the kernel fills for SIGCHLD.
type childInfo struct {
	_     [3]int32
	child struct {
		_      [0]uintptr // aligns the union
		pid    int32
		uid    uint32
		status int32
	}
}

// Signal sends a signal to the group.
func (c *Child) Signal(s syscall.Signal) { _ = unix.Kill(-c.pid, s) } // fails if all have ended

// SignalLeavers sends a signal to the processes that have left the group and still have the tag.
func (c *Child) SignalLeavers(s syscall.Signal) { process.SignalTagged(c.pid, c.tag, s) }

// Kill kills the group, and all processes with the tag.
func (c *Child) Kill() { process.KillAll(c.pid, c.tag) }

// KillGroup kills the group alone.
func (c *Child) KillGroup() { process.KillAll(c.pid, "") }

// IsStopped reports whether the command is stopped. The event Stopped may be late or missing.
func (c *Child) IsStopped() bool { return process.IsStopped(c.pid) }

// IsAlive reports whether the command lives.
func (c *Child) IsAlive() bool { return process.IsAlive(c.pid) }

// IsGroupAlive reports whether anybody in the group lives.
func (c *Child) IsGroupAlive() bool { return process.IsGroupAlive(c.pid) }

// ReapOrphans collects what has ended of the command's descendants, if this process is the first of a container.
func (c *Child) ReapOrphans() { process.ReapOrphans(c.pid, c.Watchdog.PID()) }

// HasLeavers reports whether a process lives that has left the group and still has the tag.
func (c *Child) HasLeavers() bool { return process.IsTaggedAlive(c.pid, c.tag) }

// Finish gives the terminal back, dismisses the watchdog and returns how the command has ended. Call it
// after the command's exit, when nobody of the group lives.
func (c *Child) Finish() syscall.WaitStatus {
	c.terminal.takeBack()
	c.terminal.close()
	c.Watchdog.Dismiss()
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(c.pid, &status, 0, nil)
		if err != syscall.EINTR {
			c.endLoan(status)
			return status
		}
	}
}
