package queue

import (
	"context"
	"time"
)

// wakeUp is the reason why a waiter woke up.
type wakeUp int

const (
	byBlocker    wakeUp = iota // the blocker has changed, or the watch on the blocker is lost
	byOwnNode                  // the own znode has changed, or the watch on the own znode is lost
	byHold                     // the blocker has become a hold of this session
	bySettling                 // see settlingTime
	byConnection               // the connection or the session has changed
	byContext                  // the context has ended
)

// sleep blocks until something happens. sleep is a separate function, and its callers have small frames, because thousands of
// waiters may sleep for hours, each with its stack.
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

// endSettling stops the timer, if the waiter has a timer.
func (w *waiter) endSettling() {
	if w.settling != nil {
		w.settling.Stop()
		w.settling = nil
	}
}
