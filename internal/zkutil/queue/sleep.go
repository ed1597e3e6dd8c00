package queue

import (
	"context"
	"time"
)

// wakeUp is what a waiter was woken up by.
type wakeUp int

const (
	byBlocker    wakeUp = iota // has changed, or the watch on it is lost
	byOwnNode                  // as well
	byHold                     // the blocker has become a hold of this session
	bySettling                 // see settlingTime
	byConnection               // or the session has changed
	byContext                  // has ended
)

// sleep blocks until something happens. It is a function of its own, and its callers have small frames, because
// thousands may sleep for hours, each with its stack.
func (w *waiter) sleep(ctx context.Context, changed <-chan struct{}) wakeUp {
	var settled <-chan time.Time
	if w.settling != nil {
		settled = w.settling.C
	}
	own, why := w.ownChanged()
	select {
	case <-w.blockerWatch.Fired():
		return byBlocker
	case <-own:
		return why
	case <-settled:
		return bySettling
	case <-changed:
		return byConnection
	case <-ctx.Done():
		return byContext
	}
}

// endSettling stops the timer, if there is one.
func (w *waiter) endSettling() {
	if w.settling != nil {
		w.settling.Stop()
		w.settling = nil
	}
}
