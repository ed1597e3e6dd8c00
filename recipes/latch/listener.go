package latch

import (
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Listener is told of each term of its latch. Either function may be nil. Its calls come one
// at a time, in the order of what happened, under no lock, and wait for no other listener.
type Listener struct {
	// IsLeader is called when a term has begun, unless that is over already. It may
	// go on for as long as the term does: when the term's context ends, it has to
	// return, for no successor can lead before that. A panic ends the term, and so does
	// runtime.Goexit; then the latch stands again, after a pause.
	IsLeader func(term *recipes.Lease)
	// NotLeader is called when a term has ended for which IsLeader was called, once that
	// has returned. A panic is reported as one in IsLeader is.
	NotLeader func()
}

// registration is a listener that was added.
type registration struct {
	listener Listener
	order    *zkutil.Callbacks
	removed  chan struct{}
	told     bool // of the present term; belongs to the order
}

// AddListener adds a listener; one that is added while the latch leads is told so.
// After remove no call begins any more, but one may be under way. Both may be called
// at any time, by listeners too.
func (l *LeaderLatch) AddListener(listener Listener) (remove func()) {
	r := &registration{listener: listener, order: l.candidate.Callbacks(), removed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners = append(l.listeners, r)
	if t := l.term; t != nil {
		l.tellBegin(r, t)
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.forget(func(other *registration) bool { return other == r })
	}
}

// silence removes all listeners.
func (l *LeaderLatch) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(func(*registration) bool { return true })
}

// forget is called under the lock.
func (l *LeaderLatch) forget(which func(*registration) bool) {
	l.listeners = slices.DeleteFunc(l.listeners, func(r *registration) bool {
		if !which(r) {
			return false
		}
		close(r.removed)
		l.removed = append(slices.DeleteFunc(l.removed, isClosed), r.order.Barrier())
		return true
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// tellBegin tells a listener of a term, unless that is over by then.
func (l *LeaderLatch) tellBegin(r *registration, t *term) {
	r.order.Post(func() {
		if isClosed(r.removed) || !t.entry.Stands() {
			return
		}
		r.told = true
		if r.listener.IsLeader == nil {
			return
		}
		if err := l.call(func() { r.listener.IsLeader(t.lease) }); err != nil {
			t.broken.Store(true)
			l.report(l.opError("IsLeader", err))
			_ = t.entry.Leave() // a loss has been told by the context
		}
	})
}

// tellEnd tells a listener of the end of a term that it knows of.
func (l *LeaderLatch) tellEnd(r *registration) {
	r.order.Post(func() {
		told := r.told
		r.told = false
		if !told || isClosed(r.removed) || r.listener.NotLeader == nil {
			return
		}
		if err := l.call(r.listener.NotLeader); err != nil {
			l.report(l.opError("NotLeader", err))
		}
	})
}

// call runs a listener's function. A panic becomes a *recipes.PanicError.
func (l *LeaderLatch) call(fn func()) error {
	return l.candidate.Call(
		func() error { fn(); return nil },
		func(value any, stack []byte) error { return &recipes.PanicError{Value: value, Stack: stack} })
}
