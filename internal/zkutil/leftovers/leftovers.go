package leftovers

import (
	"context"
	"slices"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// List has the deletions that calls left to the background. The zero value is empty and ready for use. All methods may be
// called concurrently.
type List struct {
	mu      sync.Mutex // protects the field below
	pending []<-chan struct{}
}

// Add adds a deletion that ends when done is closed.
func (l *List) Add(done <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(slices.DeleteFunc(l.pending, zkutil.IsClosed), done)
}

// Pending returns the deletions that may still be running, the earliest first.
func (l *List) Pending() []<-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.pending)
}

type key struct{}

// With derives a context whose calls add their deletions to l. If l is nil, they add their deletions to no list.
func With(ctx context.Context, l *List) context.Context { return context.WithValue(ctx, key{}, l) }

// Of returns the list of ctx, nil if it has none.
func Of(ctx context.Context) *List {
	l, _ := ctx.Value(key{}).(*List)
	return l
}

// Track adds a deletion to the list of ctx, if any.
func Track(ctx context.Context, done <-chan struct{}) {
	if l := Of(ctx); l != nil {
		l.Add(done)
	}
}

// Begin is Track for a deletion that ends when end is called.
func Begin(ctx context.Context) (end func()) {
	done := make(chan struct{})
	Track(ctx, done)
	return func() { close(done) }
}
