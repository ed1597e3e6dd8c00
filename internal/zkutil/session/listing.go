package session

import (
	"context"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// listings are the requests for the children of directories that are under way. They have a lock of
// their own, because no grant and no loss depends on them.
type listings struct {
	mu      sync.Mutex           // protects what is below
	running map[listKey]*listing // the value is the next listing, nil if nobody has asked for one
}

// listKey is the identity of a listing: a directory, and the name of the function that parses it.
type listKey struct{ dir, parser string }

// listing is one request for the children of a directory, shared by everyone who asked before it was
// sent. After a reconnect a thousand waiters of one session cost one or two listings, not a thousand.
type listing struct {
	done   chan struct{}
	parsed any // read-only; set before done is closed, as err is
	err    error
}

// ListChildren returns what parse makes of the children of dir, as they were at some moment after the
// call. The result must not be changed, because it is shared. parser names parse: calls with the
// same dir and parser share a listing.
func ListChildren[T any](ctx context.Context, s *Session, dir, parser string, parse func(children []string) T) (T, error) {
	l, key := &s.listings, listKey{dir, parser}
	l.mu.Lock()
	shared, isBusy := l.running[key]
	if !isBusy {
		l.running[key] = nil
		l.mu.Unlock()
		defer listNext(s, key, parse)
		return listOnce(ctx, s, dir, parse)
	}
	if shared == nil {
		shared = &listing{done: make(chan struct{})}
		l.running[key] = shared
	}
	l.mu.Unlock()
	var none T
	select {
	case <-shared.done:
		if shared.err != nil {
			return none, shared.err
		}
		return shared.parsed.(T), nil // the name of the parser stands for its type
	case <-ctx.Done():
		return none, zkutil.Interrupted(ctx, nil)
	}
}

func listOnce[T any](ctx context.Context, s *Session, dir string, parse func(children []string) T) (T, error) {
	children, err := runRequest(ctx, s, request[[]string]{run: func(conn *zk.Conn) ([]string, error) {
		children, _, err := conn.Children(dir)
		return children, zkutil.Denied(err, "list the children of", dir)
	}})
	return parse(children), err
}

// listNext begins the listing that was asked for during the latest one, if any.
func listNext[T any](s *Session, key listKey, parse func(children []string) T) {
	l := &s.listings
	l.mu.Lock()
	defer l.mu.Unlock()
	shared := l.running[key]
	if shared == nil {
		delete(l.running, key)
		return
	}
	l.running[key] = nil
	if !s.Background(func(ctx context.Context) {
		shared.parsed, shared.err = listOnce(ctx, s, key.dir, parse)
		if ctx.Err() != nil {
			shared.err = zkutil.ErrClosed // the context is that of the session
		}
		close(shared.done)
		listNext(s, key, parse)
	}) {
		shared.err = zkutil.ErrClosed
		close(shared.done)
		delete(l.running, key)
	}
}
