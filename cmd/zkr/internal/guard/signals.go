package guard

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// endOfWait are the signals that end the wait for a lock.
var endOfWait = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} //nolint:gochecknoglobals // a constant list

// Signals has the signals to this process. Each signal has one reader: first the wait for the lock, then Run. Signals
// that were ignored at the start of this process, as under nohup, remain ignored.
type Signals struct {
	c chan os.Signal
}

// NewSignals returns a value that does not receive signals yet. A script starts a background job with SIGINT and
// SIGQUIT ignored. Go's runtime leaves only SIGINT ignored, so NewSignals ignores SIGQUIT.
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

// SignalError is the cause of a context that was ended by a signal.
type SignalError struct{ Signal syscall.Signal }

func (e SignalError) Error() string { return e.Signal.String() }

// EndWait returns a context that ends with the first terminating signal. After stop, signals are kept for Run.
func (s *Signals) EndWait(ctx context.Context) (waiting context.Context, stop func()) {
	resetForChild()
	s.notify(endOfWait...)
	waiting, cancel := context.WithCancelCause(ctx)
	var reader sync.WaitGroup
	reader.Go(func() { // ends with the context; joined in stop
		for {
			select {
			case one := <-s.c:
				if slices.Contains(endOfWait, one) { // else it was left over by Run, such as a SIGCONT
					s.endWaitBy(waiting, cancel, one.(syscall.Signal)) // each of endOfWait is one
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

// endWaitBy ends a wait by a signal. If the wait is already over, the signal is kept for Run.
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
