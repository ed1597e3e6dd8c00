package latch

import (
	"slices"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Listener is told of each term of its latch. Either function may be nil. The calls of
// all listeners of a latch come one at a time, in the order of what happened, under no
// lock; a panic in one is contained and logged.
type Listener struct {
	// IsLeader is called when a term has begun, unless that is over already. It may
	// go on for as long as the term does: when the term's context ends, it has to
	// return, for no successor can lead before that.
	IsLeader func(term *recipes.Lease)
	// NotLeader is called when a term has ended for which IsLeader was called.
	NotLeader func()
}

// registration is a listener that was added.
type registration struct {
	listener Listener
	removed  chan struct{}
	told     bool // of the present term; belongs to the latch's order of callbacks
}

// AddListener adds a listener; one that is added while the latch leads is told so.
// After remove no call begins any more, but one may be under way. Both may be called
// at any time, by listeners too.
func (l *LeaderLatch) AddListener(listener Listener) (remove func()) {
	r := &registration{listener: listener, removed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners = append(l.listeners, r)
	if t := l.term; t != nil {
		l.order.Post(func() { r.lead(t) })
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
		return true
	})
}

func (r *registration) active() bool {
	select {
	case <-r.removed:
		return false
	default:
		return true
	}
}

// lead tells of a term.
func (r *registration) lead(t *term) {
	if !r.active() || !t.entry.Stands() {
		return
	}
	r.told = true
	if r.listener.IsLeader != nil {
		r.listener.IsLeader(t.lease)
	}
}

// follow tells of the end of a term.
func (r *registration) follow() {
	told := r.told
	r.told = false
	if told && r.active() && r.listener.NotLeader != nil {
		r.listener.NotLeader()
	}
}
