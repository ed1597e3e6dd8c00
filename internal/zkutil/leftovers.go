package zkutil

import (
	"context"
	"slices"
	"sync"
)

// leftovers are the deletions that calls have left to the background, for whoever wants
// to wait for them. Calls find them in their context.
type leftovers struct {
	mu      sync.Mutex // protects what is below
	pending []<-chan struct{}
}

type leftoversKey struct{}

// add notes a deletion that is over once done is closed.
func (l *leftovers) add(done <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(slices.DeleteFunc(l.pending, isOver), done)
}

func isOver(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// all are those that were noted and may still go on.
func (l *leftovers) all() []<-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.pending)
}

// leaves adds a deletion to the leftovers of ctx, if it has any.
func leaves(ctx context.Context, done <-chan struct{}) {
	if l, ok := ctx.Value(leftoversKey{}).(*leftovers); ok {
		l.add(done)
	}
}

// leftBy is leaves for callers that have no channel yet.
func leftBy(ctx context.Context) (done func()) {
	gone := make(chan struct{})
	leaves(ctx, gone)
	return func() { close(gone) }
}
