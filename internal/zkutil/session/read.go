package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// Node is the content of a znode.
type Node struct {
	Data []byte
	Stat zk.Stat
}

// ReadAndWatch reads the znode at path, and returns a watch effective from the read on. The caller has to release the watch.
func (s *Session) ReadAndWatch(ctx context.Context, path string) (Node, *Watch, error) {
	r, err := s.watches.start(ctx, readCall(path))
	if err != nil {
		return Node{}, nil, err
	}
	return r.wait(ctx)
}

// watchedRead is a ReadAndWatch whose request was sent.
type watchedRead struct {
	*call

	watch    *Watch // perhaps that of another call
	isUsable bool   // the watch is not being removed
}

// start sends a read request, which also sets a watch unless the session already has it.
func (ws *watches) start(ctx context.Context, c *call) (watchedRead, error) {
	s := ws.s
	t, err := s.gate.admit(ctx, c)
	if err != nil {
		return watchedRead{}, err
	}
	r := watchedRead{call: c}
	r.watch, _, r.isUsable = ws.attach(r.call)
	s.gate.sendAdmitted(t, r.call)
	return r, nil
}

// OwnRead is a read of a contender's own znode, already sent.
type OwnRead struct{ watchedRead }

// StartReadOwn sends a read of a contender's own znode.
func (s *Session) StartReadOwn(ctx context.Context, path string) (*OwnRead, error) {
	r, err := s.watches.start(ctx, readCall(path))
	return &OwnRead{r}, err
}

// Wait returns the znode, and a watch effective from the read on. From then on heartbeats check the znode: a
// readable znode can be checked.
func (r *OwnRead) Wait(ctx context.Context) (Node, *Watch, error) {
	n, own, err := r.wait(ctx)
	if err == nil {
		r.flight.s.mu.Lock()
		r.flight.s.keeper.nodes[own.path] = struct{}{}
		r.flight.s.mu.Unlock()
	}
	return n, own, err
}

func (r watchedRead) wait(ctx context.Context) (Node, *Watch, error) {
	a, w, err := r.waitAnswer(ctx)
	return Node{a.Data, a.Stat}, w, err
}

// waitAnswer returns the answer, and a watch effective from the answer on. It repeats a read that the watch of another call does not cover.
func (r watchedRead) waitAnswer(ctx context.Context) (wire.Answer, *Watch, error) {
	for {
		a, err := r.call.wait(ctx)
		if err != nil {
			r.abandon()
			return a, nil, err
		}
		if w := r.watch; r.isUsable && r.flight.s.watches.await(ctx, w) == nil && w.core.Covers(w.latestChange(a)) {
			return a, w, nil
		}
		r.abandon()
		again := &call{Request: wire.Request{Op: r.Op, Path: r.Path}}
		if r, err = r.flight.s.watches.start(ctx, again); err != nil {
			return wire.Answer{}, nil, err
		}
	}
}

// abandon releases the watch, whether or not the server answered.
func (r watchedRead) abandon() {
	if r.isUsable {
		r.flight.s.ReleaseWatch(r.watch)
	}
}

// A contender of another program may have an ACL by which no other client may read the znode. Such a contender is
// in the queue all the same. A watch does not help: servers set a watch with exists, which needs no permission,
// but send no event to a session that may not read the znode (since 3.8.4 and 3.9.2). So the queue is listed
// again after a pause.

// unreadPause is the time between two listings of a queue because of an unreadable znode.
const unreadPause = time.Second

// isUnreadable reports whether a server refused to show an existing znode. For a missing znode the answer
// is zk.ErrNoNode, with any permissions.
func isUnreadable(err error) bool { return errors.Is(err, zk.ErrNoAuth) }

// ReadPeer reads the znode of another contender, without a watch. For an unreadable znode ReadPeer returns the
// stat alone, or the zero Node if the server refuses the stat too.
func (s *Session) ReadPeer(ctx context.Context, path string) (Node, error) {
	n, err := s.gate.readNode(ctx, path)
	if isUnreadable(err) {
		return s.gate.readStat(ctx, path)
	}
	return n, err
}

// WaitPeer is Wait for the znode of another contender. For an unreadable znode WaitPeer returns a watch that
// fires after a pause.
func (p PendingWatch) WaitPeer(ctx context.Context) (*Watch, error) {
	w, err := p.Wait(ctx)
	if isUnreadable(err) {
		return p.s.watches.byClock(), nil
	}
	return w, err
}

// ReadWatchPeer reads like ReadPeer, and returns a watch like WaitPeer's, effective from the read on. The
// caller has to release the watch.
func (s *Session) ReadWatchPeer(ctx context.Context, path string) (Node, *Watch, error) {
	n, w, err := s.ReadAndWatch(ctx, path)
	if isUnreadable(err) {
		n, err = s.gate.readStat(ctx, path)
		return n, s.watches.byClock(), err
	}
	return n, w, err
}

// byClock returns a watch that fires after a pause.
func (ws *watches) byClock() *Watch {
	s := ws.s
	w := &Watch{core: core.Watch{Users: 1, IsOver: true}, fired: make(chan struct{})}
	s.Background(func(ctx context.Context) {
		timer := time.NewTimer(unreadPause)
		defer timer.Stop()
		select {
		case <-timer.C:
			close(w.fired)
		case <-ctx.Done(): // the waits ended too
		}
	})
	return w
}

// listings are the requests under way for the children of directories. listings has its own lock, because no
// grant and no loss depends on a listing.
type listings struct {
	mu      sync.Mutex           // protects the field below
	running map[listKey]*listing // the value is the next listing, nil if no caller asked for one
}

// listKey identifies a listing: a directory, and the name of the function that parses the list.
type listKey struct{ dir, parser string }

// listing is a request for the children of a directory, shared by everyone who asked before the request was
// sent. After a reconnect a thousand waiters of one session cost one or two listings, not a thousand.
type listing struct {
	done   chan struct{}
	parsed any // read-only; set before done is closed, as err is
	err    error
}

// ListChildren returns the children of dir, parsed by parse, as they were at some moment after the call. The
// result must not be changed, because the result is shared. parser names parse: calls with the same dir and
// parser share a listing.
func ListChildren[T any](ctx context.Context, s *Session, dir, parser string, parse func(children []string) T) (T, error) {
	p := &pendingList[T]{s: s, key: listKey{dir, parser}, parse: parse}
	if err := p.begin(ctx); err != nil {
		var none T
		return none, err
	}
	return p.wait(ctx)
}

// ListAndWatch returns the children of dir, parsed by parse, and a watch, effective from the listing on, that
// fires when a child is created or deleted. The caller has to release the watch.
func ListAndWatch[T any](ctx context.Context, s *Session, dir string, parse func(children []string) T) (T, *Watch, error) {
	var none T
	r, err := s.watches.start(ctx, listCall(dir))
	if err != nil {
		return none, nil, err
	}
	a, w, err := r.waitAnswer(ctx)
	if err != nil {
		return none, nil, err
	}
	return parse(a.Children), w, nil
}

// pendingList is a requested listing.
type pendingList[T any] struct {
	s      *Session
	key    listKey
	parse  func(children []string) T
	own    *call    // nil: shared is set
	shared *listing // of all who ask while another listing is under way
}

// begin requests the list. Afterwards the caller has to call wait.
func (p *pendingList[T]) begin(ctx context.Context) error {
	l := &p.s.listings
	l.mu.Lock()
	if p.joinLocked(l) {
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	p.own = listCall(p.key.dir)
	if err := p.s.gate.send(ctx, p.own); err != nil {
		listNext(p.s, p.key, p.parse)
		return err
	}
	return nil
}

// beginAllBehind sends a request, and lists in the same flush: each list shows the effect of the request. If
// another listing of a directory is under way, the list is the next listing, sent after the current one.
func beginAllBehind[T any](ctx context.Context, s *Session, first *call, lists ...*pendingList[T]) error {
	calls := make([]*call, 1, 2) // mostly with a single list
	calls[0] = first
	for _, p := range lists {
		calls = append(calls, listCall(p.key.dir))
	}
	t, err := s.gate.admit(ctx, calls...)
	if err != nil {
		return err
	}
	l := &s.listings
	sent := calls[:1]
	l.mu.Lock() // until the request is queued, so that the next listing is sent behind it
	for i, p := range lists {
		if !p.joinLocked(l) {
			p.own = calls[i+1]
			sent = append(sent, p.own) // never ahead of the loop, because at most i lists were appended
		}
	}
	s.gate.sendAdmitted(t, sent...)
	l.mu.Unlock()
	for range len(calls) - len(sent) {
		s.gate.giveBack()
	}
	return nil
}

// joinLocked joins the next listing if a listing is under way. Otherwise the caller has to send the request.
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
		return p.shared.parsed.(T), nil // the name of the parser implies its type
	case <-ctx.Done():
		return list, zkutil.Interrupted(ctx, nil)
	case <-p.s.life.open.Done():
		return list, zkutil.ErrClosed
	}
}

// isUnchangedSince reports whether the list shows that no child was created or deleted by the transaction with a zxid or by a later one.
func (p *pendingList[T]) isUnchangedSince(zxid int64) bool {
	if p.own == nil || !zkutil.IsClosed(p.own.flight.done) {
		return false
	}
	a := p.own.flight.answer
	return a.Err == nil && a.Stat.Pzxid < zxid
}

// listNext sends the listing requested during the latest listing, if any.
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
		a, err := s.gate.run(ctx, listCall(key.dir))
		shared.parsed, shared.err = parse(a.Children), err
		if ctx.Err() != nil {
			shared.err = zkutil.ErrClosed // the context is the session's
		}
		close(shared.done)
		listNext(s, key, parse)
	}) {
		shared.err = zkutil.ErrClosed
		close(shared.done)
		delete(l.running, key)
	}
}
