package session

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Leftovers are the deletions that calls have left to the background, for callers that wait for them
// later. A call finds them in its context.
type Leftovers struct {
	mu      sync.Mutex // protects what is below
	pending []<-chan struct{}
}

type leftoversKey struct{}

// Add notes a deletion that has ended once done is closed.
func (l *Leftovers) Add(done <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(slices.DeleteFunc(l.pending, isDone), done)
}

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// pendingDeletions are the deletions that may still go on.
func (l *Leftovers) pendingDeletions() []<-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.pending)
}

// WithLeftovers derives a context whose calls note their deletions in l.
func WithLeftovers(ctx context.Context, l *Leftovers) context.Context {
	return context.WithValue(ctx, leftoversKey{}, l)
}

// Await waits until all deletions have ended, for an operation timeout at most. After that the error
// says why they go on.
func (l *Leftovers) Await(s *Session) error {
	limit := time.NewTimer(s.cfg.OperationTimeout)
	defer limit.Stop()
	for _, done := range l.pendingDeletions() {
		select {
		case <-done:
		case <-s.life.open.Done():
			return nil // the znodes go with the session
		case <-limit.C:
			return notDeleted(s.cfg.OperationTimeout, s.whyUnavailable())
		}
	}
	return nil
}

// trackDeletion notes a deletion in the leftovers of ctx, if ctx has any.
func trackDeletion(ctx context.Context, done <-chan struct{}) {
	if l, ok := ctx.Value(leftoversKey{}).(*Leftovers); ok {
		l.Add(done)
	}
}

// beginDeletion is trackDeletion for a deletion that ends when end is called.
func beginDeletion(ctx context.Context) (end func()) {
	done := make(chan struct{})
	trackDeletion(ctx, done)
	return func() { close(done) }
}
