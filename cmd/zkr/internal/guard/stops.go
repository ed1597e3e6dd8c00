//go:build linux

package guard

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/boottime"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/child"
)

// forChild are the signals for the child only, and not for a wait. The terminal reports its size to the group in the
// foreground, which is zkr's in a script.
var forChild = []os.Signal{syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH} //nolint:gochecknoglobals // a constant list

// resetForChild leaves the signals that concern the child alone to the system.
func resetForChild() { signal.Reset(forChild...) }

// ForChild makes all signals for the child go to Run.
func (s *Signals) ForChild() {
	s.notify(forChild...)
	s.notify(endOfWait...)
}

// stopGrace is how long a command may take to stop by itself after SIGTSTP.
const stopGrace = 100 * time.Millisecond

func (g *guard) onSignal(s syscall.Signal) {
	switch s {
	case syscall.SIGTSTP:
		g.child.Signal(s)
		g.isPausing, g.stopMates, g.pauseAt = true, 0, boottime.Now().Add(stopGrace)
	case syscall.SIGCONT:
		if g.hasProceeded { // the signal that ended our own stop; the group may be stopped again by now
			g.hasProceeded = false
			return
		}
		g.proceed()
	case syscall.SIGWINCH:
		g.child.Signal(s)
	default:
		if s != syscall.SIGUSR1 && s != syscall.SIGUSR2 {
			g.result.WasToldToGo = true
		}
		if isKey := s == syscall.SIGINT || s == syscall.SIGQUIT; isKey && g.child.HasControllingTerminal() {
			g.child.Signal(s) // no waiter is left for Ctrl-C
			return
		}
		g.echoes.onOwn(s, boottime.Now())
	}
}

// onChild handles the end of the command, and its stops. A command that stops because it wants the terminal borrows
// the terminal; in the terminal's background, the whole job stops. A command that has the terminal was stopped by
// Ctrl-Z. Any other stop affects only the command.
func (g *guard) onChild(event child.Event) {
	if event.HasExited {
		g.hasExited = true
		return
	}
	wantsTerminal := event.StoppedBy == syscall.SIGTTIN || event.StoppedBy == syscall.SIGTTOU
	switch {
	case g.isPausing || !g.child.IsStopped(): // if not stopped: the stop is already handled and over
	case g.child.HasTerminal():
		g.isPausing, g.stopMates = true, syscall.SIGTSTP
	case wantsTerminal && g.child.IsInBackground():
		g.isPausing, g.stopMates = true, event.StoppedBy
	case wantsTerminal:
		g.child.Lend()
	}
}

// isToPause reports whether this process must stop, because of SIGTSTP or because the command is stopped.
func (g *guard) isToPause(now boottime.Time) bool {
	return g.isPausing && (g.child.IsStopped() || now >= g.pauseAt)
}

// stopTime bounds how long the kernel takes to stop a command.
const stopTime = time.Second

// pause stops the group and this process, until SIGCONT.
func (g *guard) pause() {
	g.isPausing = false
	g.child.Signal(syscall.SIGSTOP)
	for began := time.Now(); !g.child.IsStopped(); time.Sleep(time.Millisecond) { //nolint:forbidigo // no event reports a stop reliably
		if !g.child.IsAlive() {
			return
		}
		if time.Since(began) > stopTime {
			break // it waits for a child stopped between vfork and exec, and does not run either
		}
	}
	g.hasProceeded = g.child.StopSelf(g.stopMates)
	g.proceed()
}

// proceed continues the group, if the lease is still trusted; else the group is killed.
func (g *guard) proceed() {
	g.lookAtLease()
	if !g.result.IsLost {
		g.child.Continue()
	} else if g.child.IsStopped() {
		g.kill()
	}
}
