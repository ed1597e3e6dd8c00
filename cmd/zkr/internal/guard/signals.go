package guard

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/boottime"
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

// NewSignals returns a value that gets no signals yet.
func NewSignals() *Signals { return &Signals{c: make(chan os.Signal, 16)} }

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
		select {
		case one := <-s.c:
			cancel(SignalError{one.(syscall.Signal)}) // on Linux it is one
		case <-waiting.Done():
		}
	})
	return waiting, func() {
		cancel(nil)
		reader.Wait()
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
		g.isPausing, g.pauseAt = true, boottime.Now().Add(stopGrace)
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

// isToPause reports whether this process has to stop: because of SIGTSTP, or because the group of a job has
// stopped. Ctrl-Z stops the group alone, and so does its reading from a terminal in whose background it is.
func (g *guard) isToPause(now boottime.Time) bool {
	if g.child.IsStopped() {
		return g.isPausing || g.child.HasTerminal()
	}
	return g.isPausing && now >= g.pauseAt
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
	g.child.StopSelf()
	g.hasProceeded = true
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
