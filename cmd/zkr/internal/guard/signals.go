package guard

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/boottime"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/child"
)

// forwarded are the signals that go to the group.
var forwarded = []os.Signal{ //nolint:gochecknoglobals // a constant list
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// endOfWait are the signals that end the wait for a lock.
var endOfWait = forwarded[:4] //nolint:gochecknoglobals // a constant list

// Signals are those that this process gets. Each goes to one reader: first to the wait for the lock, then
// to Run. Signals that this process was started to ignore, as nohup does, remain ignored.
type Signals struct {
	c chan os.Signal
}

// NewSignals returns a value that gets no signals yet. A script starts a background job without SIGINT and SIGQUIT,
// of which the runtime of Go leaves the former as it was: the latter is ignored here.
func NewSignals() *Signals {
	if signal.Ignored(syscall.SIGINT) {
		signal.Ignore(syscall.SIGQUIT)
	}
	return &Signals{c: make(chan os.Signal, 16)}
}

func (s *Signals) notify(wanted ...os.Signal) {
	for _, one := range wanted {
		if !signal.Ignored(one) {
			signal.Notify(s.c, one)
		}
	}
}

// SignalError is the cause of a context that a signal has ended.
type SignalError struct{ Signal syscall.Signal }

func (e SignalError) Error() string { return e.Signal.String() }

// EndWait returns a context that ends with the first signal that ends programs. After stop the signals
// have no reader: they go to Run.
func (s *Signals) EndWait(ctx context.Context) (waiting context.Context, stop func()) {
	signal.Reset(syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGUSR1, syscall.SIGUSR2)
	s.notify(endOfWait...)
	waiting, cancel := context.WithCancelCause(ctx)
	var reader sync.WaitGroup
	reader.Go(func() { // ends with the context; joined in stop
		for {
			select {
			case one := <-s.c:
				if slices.Contains(endOfWait, one) { // else it was left over by Run, such as a SIGCONT
					s.endWaitBy(waiting, cancel, one.(syscall.Signal)) // on Linux it is one
					return
				}
			case <-waiting.Done():
				return
			}
		}
	})
	return waiting, func() {
		cancel(nil)
		reader.Wait()
	}
}

// endWaitBy ends a wait by a signal. If the wait has ended meanwhile, nobody would notice the signal: it goes to Run.
func (s *Signals) endWaitBy(waiting context.Context, cancel context.CancelCauseFunc, one syscall.Signal) {
	end := SignalError{one}
	cancel(end)
	if errors.Is(context.Cause(waiting), end) {
		return
	}
	select {
	case s.c <- one:
	default: // as many wait already as the runtime keeps
	}
}

// ForChild makes all signals for the child go to Run.
func (s *Signals) ForChild() {
	s.notify(append([]os.Signal{syscall.SIGTSTP, syscall.SIGCONT}, forwarded...)...)
}

// stopGrace is how long a command may take to stop by itself after SIGTSTP.
const stopGrace = 100 * time.Millisecond

func (g *guard) onSignal(s syscall.Signal) {
	switch s {
	case syscall.SIGTSTP:
		g.child.Signal(s)
		g.isPausing, g.stopMates, g.pauseAt = true, 0, boottime.Now().Add(stopGrace)
	case syscall.SIGCONT:
		if g.hasProceeded { // the signal that has ended our own stop; the group may have been stopped again since
			g.hasProceeded = false
			return
		}
		g.proceed()
	default:
		if s != syscall.SIGUSR1 && s != syscall.SIGUSR2 {
			g.result.WasToldToGo = true
		}
		g.child.Signal(s)
	}
}

// onChild notices the end of the command, and its stops. A command that stops because it wants the terminal
// borrows it; in the terminal's background, all of the job stops. A command that has the terminal has been stopped by
// its Ctrl-Z. Any other stop concerns the command alone.
func (g *guard) onChild(event child.Event) {
	if event.HasExited {
		g.hasExited = true
		return
	}
	wantsTerminal := event.StoppedBy == syscall.SIGTTIN || event.StoppedBy == syscall.SIGTTOU
	switch {
	case g.isPausing || !g.child.IsStopped(): // the latter: the stop was noticed otherwise, and is over
	case g.child.HasTerminal():
		g.isPausing, g.stopMates = true, syscall.SIGTSTP
	case wantsTerminal && g.child.IsInBackground():
		g.isPausing, g.stopMates = true, event.StoppedBy
	case wantsTerminal:
		g.child.Lend()
	}
}

// isToPause reports whether this process has to stop: because of SIGTSTP, or because the command has stopped.
func (g *guard) isToPause(now boottime.Time) bool {
	return g.isPausing && (g.child.IsStopped() || now >= g.pauseAt)
}

// stopTime bounds how long the kernel takes to stop a command.
const stopTime = time.Second

// pause stops the group and this process, until SIGCONT.
func (g *guard) pause() {
	g.isPausing = false
	g.child.Signal(syscall.SIGSTOP)
	for began := time.Now(); !g.child.IsStopped(); time.Sleep(time.Millisecond) { //nolint:forbidigo // nothing tells it reliably
		if !g.child.IsAlive() {
			return
		}
		if time.Since(began) > stopTime {
			break // it waits for a child that has stopped between vfork and exec, and does not run either
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
