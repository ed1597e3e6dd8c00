//go:build linux

// Package child runs a command in a process group of its own, which gets the terminal.
//
// The kernel kills the command when the thread that called Start ends: so Start has to be called from
// the main thread. That covers the moment in which the watchdog does not know the group yet.
package child

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/boottime"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/cgroup"
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
	HasExited bool           // descendants may be alive
	StoppedBy syscall.Signal // if not exited; may be continued by now
}

// Child is a running command. Its methods are for a single goroutine.
type Child struct {
	Events   <-chan Event
	Watchdog *watchdog.Watchdog
	pid      int
	family   process.Family
	terminal *terminal
}

// Start starts the command in its own process group, guarded by a watchdog. If this process is in the terminal's foreground and
// alone in its group, the command gets the terminal. The watchdog kills the group at until, unless a later call sets another
// time.
func Start(cmd Command, until boottime.Time) (*Child, error) {
	dog, err := watchdog.Start()
	if err != nil {
		return nil, err
	}
	c := &Child{Watchdog: dog, family: newFamily(cmd.Tag, dog), terminal: openTerminal()}
	if err := errors.Join(dog.Family(c.family), dog.Until(until)); err != nil {
		dog.Dismiss()
		c.family.Cgroup.Remove()
		return nil, err
	}
	if err := c.start(cmd); err != nil {
		c.terminal.takeBack() // the group may own the terminal although the command could not be executed
		c.terminal.close()
		dog.Dismiss()
		c.family.Cgroup.Remove()
		return nil, err
	}
	c.family.Group = c.pid
	if err := dog.Family(c.family); err != nil {
		c.Kill()
		return nil, err
	}
	events := make(chan Event, 1)
	c.Events = events
	go watchProcess(c.pid, events) // ends with the command
	return c, nil
}

// newFamily returns the marks by which the processes of a command will be known.
func newFamily(tag string, dog *watchdog.Watchdog) process.Family {
	process.Subreap()
	process.ReapOrphans()
	return process.Family{
		Cgroup: cgroup.New(),
		Zkr:    process.Self(),
		Others: slices.DeleteFunc(process.Children(), func(id process.ID) bool { return id.PID == dog.PID() }),
		Tag:    tag,
	}
}

// start starts the command, in the control group if the kernel permits that.
func (c *Child) start(cmd Command) error {
	t := c.terminal
	t.allowOutputStops()
	sys := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if t.isToGive() {
		t.saveModes()
		sys.Foreground, sys.Ctty, t.isGiven = true, t.fd(), true
	}
	attr := &os.ProcAttr{Env: cmd.Env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: sys}
	p, err := c.startInCgroup(cmd, attr)
	if err != nil {
		c.family.Cgroup.Remove()
		c.family.Cgroup = ""
		p, err = process.Start(cmd.Path, cmd.Args, attr)
	}
	if err != nil {
		return err
	}
	t.ignoreOutputStops()
	c.pid = p.Pid
	return p.Release() // waited for in Finish
}

// errNoCgroup is returned by startInCgroup if there is none.
var errNoCgroup = errors.New("no cgroup")

func (c *Child) startInCgroup(cmd Command, attr *os.ProcAttr) (*os.Process, error) {
	if c.family.Cgroup == "" {
		return nil, errNoCgroup
	}
	folder, err := os.Open(string(c.family.Cgroup))
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }()
	sys, inCgroup := *attr.Sys, *attr
	sys.UseCgroupFD, sys.CgroupFD, inCgroup.Sys = true, int(folder.Fd()), &sys
	return process.Start(cmd.Path, cmd.Args, &inCgroup)
}

// watchProcess reports changes of a process. It does not reap the process, because the kernel could then reuse the
// id, which is also the id of the group.
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
			_ = unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOHANG, nil) // consume the event, to report a stop once
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
func (c *Child) Signal(s syscall.Signal) { _ = unix.Kill(-c.pid, s) } // fails if no process of the group is alive

// SignalLeavers sends a signal to descendants outside the group.
func (c *Child) SignalLeavers(s syscall.Signal) { c.family.SignalLeavers(c.Watchdog.PID(), s) }

// Kill kills the group, and descendants outside the group.
func (c *Child) Kill() { c.family.Kill(c.Watchdog.PID()) }

// KillGroup kills the group alone.
func (c *Child) KillGroup() { c.family.KillGroup() }

// IsStopped reports whether the command is stopped. The event Stopped may be late or missing.
func (c *Child) IsStopped() bool { return process.IsStopped(c.pid) }

// IsAlive reports whether the command lives.
func (c *Child) IsAlive() bool { return process.IsAlive(c.pid) }

// IsGroupAlive reports whether any process of the group is alive.
func (c *Child) IsGroupAlive() bool { return process.IsGroupAlive(c.pid) }

// HasLeavers reports whether a descendant outside the group is alive.
func (c *Child) HasLeavers() bool { return len(c.family.Leavers(c.Watchdog.PID())) > 0 }

// Finish takes the terminal back, dismisses the watchdog, removes the control group and returns the command's exit status. Call
// it after the command's exit, when no process of the group is alive.
//
// A command killed by a signal or by zkr could not restore the terminal's modes, so Finish does.
func (c *Child) Finish(isEndedByZkr bool) syscall.WaitStatus {
	c.terminal.takeBack()
	defer c.terminal.close()
	c.Watchdog.Dismiss()
	c.family.Cgroup.Remove()
	defer process.Reaped(c.pid)
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(c.pid, &status, 0, nil)
		if err != syscall.EINTR {
			if isEndedByZkr || status.Signaled() {
				c.terminal.restoreModes()
			}
			c.endLoan(status)
			return status
		}
	}
}
