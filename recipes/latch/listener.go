package latch

import (
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/callbacks"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Listener has the functions to call at the beginning and the end of each term of a latch. Either may be nil. The calls
// of one listener run one at a time, in the order of the events, under no lock, and wait for no other listener.
type Listener struct {
	// IsLeader is called when a term begins, unless the term is already over. It may run for as long as the term lasts.
	// When the term's context ends, IsLeader has to return, because no successor can lead until then. A panic or
	// runtime.Goexit ends the term; the latch joins again after a pause.
	IsLeader func(term *recipes.Lease)
	// NotLeader is called at the end of each term for which IsLeader was called, after IsLeader returned. A panic is
	// reported as for IsLeader.
	NotLeader func()
}

// registration is an added listener.
type registration struct {
	listener Listener
	calls    *callbacks.Order
	removed  chan struct{} // closed by remove
	hasBegun bool          // IsLeader was called for the present term, and NotLeader has to be; used only inside calls
}

// AddListener adds a listener. If the latch leads, IsLeader of the listener is called. After remove no call
// begins, but a call may still run. Both functions may be called at any time, also by listeners.
func (l *LeaderLatch) AddListener(listener Listener) (remove func()) {
	l.base.MustCheck("add listener")
	r := &registration{listener: listener, calls: l.candidate.Callbacks(), removed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners = append(l.listeners, r)
	if t := l.term; t != nil {
		l.postIsLeader(r, t)
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.removeListenersLocked(func(other *registration) bool { return other == r })
	}
}

func (l *LeaderLatch) removeAllListeners() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeListenersLocked(func(*registration) bool { return true })
}

func (l *LeaderLatch) removeListenersLocked(which func(*registration) bool) {
	l.listeners = slices.DeleteFunc(l.listeners, func(r *registration) bool {
		if !which(r) {
			return false
		}
		close(r.removed)
		l.removedDone = append(slices.DeleteFunc(l.removedDone, zkutil.IsClosed), r.calls.Barrier())
		return true
	})
}

// postIsLeader schedules IsLeader of a listener, to be called unless the term is over by then.
func (l *LeaderLatch) postIsLeader(r *registration, t *term) {
	r.calls.Post(func() {
		if zkutil.IsClosed(r.removed) || !t.entry.Stands() {
			return
		}
		r.hasBegun = true
		if r.listener.IsLeader == nil {
			return
		}
		if err := l.runListener(func() { r.listener.IsLeader(t.lease) }); err != nil {
			t.hasFailed.Store(true)
			l.reportTrouble(l.base.OpError("IsLeader", err))
			_ = t.entry.Fail() // a loss shows in the context of the term
		}
	})
}

// postNotLeader schedules NotLeader of a listener, to be called if IsLeader was.
func (l *LeaderLatch) postNotLeader(r *registration) {
	if r.listener.NotLeader == nil {
		return
	}
	r.calls.Post(func() {
		hasBegun := r.hasBegun
		r.hasBegun = false
		if !hasBegun || zkutil.IsClosed(r.removed) {
			return
		}
		if err := l.runListener(r.listener.NotLeader); err != nil {
			l.reportTrouble(l.base.OpError("NotLeader", err))
		}
	})
}

// runListener runs a function of a listener. A panic becomes a *recipes.PanicError.
func (l *LeaderLatch) runListener(fn func()) error {
	return l.candidate.Call(
		func() error { fn(); return nil },
		func(value any, stack []byte) error { return &recipes.PanicError{Value: value, Stack: stack} })
}
