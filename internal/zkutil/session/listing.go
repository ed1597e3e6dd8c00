package session

import (
	"context"
	"sync"

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
	p := &pendingList[T]{s: s, key: listKey{dir, parser}, parse: parse}
	if err := p.begin(ctx); err != nil {
		var none T
		return none, err
	}
	return p.wait(ctx)
}

// ListAndWatch returns what parse makes of the children of dir, and a watch that stands from that listing
// on, and fires when a child is created or deleted.
func ListAndWatch[T any](ctx context.Context, s *Session, dir string, parse func(children []string) T) (T, *Watch, error) {
	var none T
	r, err := s.startWatched(ctx, listCall(dir))
	if err != nil {
		return none, nil, err
	}
	a, w, err := r.waitAnswer(ctx)
	if err != nil {
		return none, nil, err
	}
	return parse(a.Children), w, nil
}

// pendingList is a listing that was asked for.
type pendingList[T any] struct {
	s      *Session
	key    listKey
	parse  func(children []string) T
	own    *call    // nil: shared is set
	shared *listing // of everybody who asks while another listing is under way
}

// begin asks for the list. Afterwards wait has to be called.
func (p *pendingList[T]) begin(ctx context.Context) error {
	l := &p.s.listings
	l.mu.Lock()
	if p.joinLocked(l) {
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	p.own = listCall(p.key.dir)
	if err := p.s.send(ctx, p.own); err != nil {
		listNext(p.s, p.key, p.parse)
		return err
	}
	return nil
}

// beginBehind sends a request, and the list in the same flush: it shows what the request has done. If
// another listing is under way, the list is the next one, which is sent after that.
func (p *pendingList[T]) beginBehind(ctx context.Context, first *call) error {
	s, l := p.s, &p.s.listings
	t, err := s.enterGate(ctx, 2, first.isCleanUp)
	if err != nil {
		return err
	}
	l.mu.Lock() // until the request is queued, so that the next listing is sent behind it
	isShared := p.joinLocked(l)
	if isShared {
		s.sendAdmitted(t, first)
	} else {
		p.own = listCall(p.key.dir)
		s.sendAdmitted(t, first, p.own)
	}
	l.mu.Unlock()
	if isShared {
		s.returnTicket()
	}
	return nil
}

// joinLocked joins the next listing if one is under way. Otherwise the caller has to send one.
func (p *pendingList[T]) joinLocked(l *listings) (isShared bool) {
	next, isBusy := l.running[p.key]
	if !isBusy {
		l.running[p.key] = nil
		return false
	}
	if next == nil {
		next = &listing{done: make(chan struct{})}
		l.running[p.key] = next
	}
	p.shared = next
	return true
}

// wait returns the list.
func (p *pendingList[T]) wait(ctx context.Context) (list T, err error) {
	if p.own != nil {
		a, err := p.own.wait(ctx)
		listNext(p.s, p.key, p.parse)
		return p.parse(a.Children), err
	}
	select {
	case <-p.shared.done:
		if p.shared.err != nil {
			return list, p.shared.err
		}
		return p.shared.parsed.(T), nil // the name of the parser stands for its type
	case <-ctx.Done():
		return list, zkutil.Interrupted(ctx, nil)
	case <-p.s.life.open.Done():
		return list, zkutil.ErrClosed
	}
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
		a, err := s.run(ctx, listCall(key.dir))
		shared.parsed, shared.err = parse(a.Children), err
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
