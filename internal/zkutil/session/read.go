package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// Node is the content of a znode.
type Node struct {
	Data []byte
	Stat zk.Stat
}

// readAndWatch reads the znode at path, and returns a watch effective from the read on.
func (ws *watches) readAndWatch(ctx context.Context, path string) (Node, *Watch, error) {
	r, err := ws.startRead(ctx, path)
	if err != nil {
		return Node{}, nil, err
	}
	return r.wait(ctx)
}

// watchedRead is a readAndWatch whose request was sent.
type watchedRead struct {
	*call

	shared   *Watch // the watch of another call; nil: this call sets a watch
	isUsable bool   // the watch is not being removed
}

func (ws *watches) startRead(ctx context.Context, path string) (watchedRead, error) {
	return ws.start(ctx, readCall(path))
}

// start sends a read request, which also sets a watch unless the session already has it.
func (ws *watches) start(ctx context.Context, c *call) (watchedRead, error) {
	s := ws.s
	if err := s.gate.hangUps.refuse(c.Op); err != nil {
		return watchedRead{}, err
	}
	t, err := s.gate.enter(ctx, 1, false)
	if err != nil {
		return watchedRead{}, err
	}
	r := watchedRead{call: c}
	r.shared, r.isUsable = ws.attach(r.call)
	s.gate.sendAdmitted(t, r.call)
	return r, nil
}

// OwnRead is a read of a contender's own znode, already sent.
type OwnRead struct{ watchedRead }

// StartReadOwn sends a read of a contender's own znode.
func (s *Session) StartReadOwn(ctx context.Context, path string) (*OwnRead, error) {
	r, err := s.watches.startRead(ctx, path)
	return &OwnRead{r}, err
}

// Wait returns the znode, and a watch effective from the read on. From then on heartbeats check the znode: a
// readable znode can be checked.
func (r *OwnRead) Wait(ctx context.Context) (Node, *Watch, error) {
	n, own, err := r.wait(ctx)
	if err == nil {
		r.s.mu.Lock()
		r.s.keeper.nodes[own.path] = struct{}{}
		r.s.mu.Unlock()
	}
	return n, own, err
}

func (r watchedRead) wait(ctx context.Context) (Node, *Watch, error) {
	a, w, err := r.waitAnswer(ctx)
	return Node{a.Data, a.Stat}, w, err
}

// waitAnswer returns the answer, and a watch effective from the answer on. The watch of another call is
// effective from the read of the other call on, and the server may have executed the other read after this
// read: then neither the answer nor the watch shows a change in between. So waitAnswer repeats a read whose
// znode is older than the watch, and a read answered while the other call found nothing to watch.
func (r watchedRead) waitAnswer(ctx context.Context) (wire.Answer, *Watch, error) {
	for {
		a, err := r.call.wait(ctx)
		if err != nil {
			r.abandon()
			return a, nil, err
		}
		if r.shared == nil {
			return a, r.watch, nil
		}
		if w := r.shared; r.isUsable && r.s.watches.await(ctx, w) == nil && w.latestChange(a) >= w.changedBy {
			return a, w, nil
		}
		r.abandon()
		again := &call{Request: wire.Request{Op: r.Op, Path: r.Path}, what: r.what, where: r.where}
		if r, err = r.s.watches.start(ctx, again); err != nil {
			return wire.Answer{}, nil, err
		}
	}
}

// abandon releases the watch, whether or not the server has answered.
func (r watchedRead) abandon() {
	switch {
	case r.shared == nil:
		r.s.ReleaseWatch(r.watch)
	case r.isUsable:
		r.s.ReleaseWatch(r.shared)
	}
}

// A contender of another program may have an ACL by which nobody else may read the znode. Such a contender is
// in the queue all the same. A watch does not help: servers set a watch with exists, which needs no permission,
// but send no event to a session that may not read the znode (since 3.8.4 and 3.9.2). So the queue is listed
// again after a pause.

// unreadPause is the time between two listings of a queue because of an unreadable znode.
const unreadPause = time.Second

// isUnreadable reports whether a server has refused to show an existing znode. For a missing znode the answer
// is zk.ErrNoNode, whatever the permissions.
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
	n, w, err := s.watches.readAndWatch(ctx, path)
	if isUnreadable(err) {
		n, err = s.gate.readStat(ctx, path)
		return n, s.watches.byClock(), err
	}
	return n, w, err
}

// byClock returns a watch that fires after a pause.
func (ws *watches) byClock() *Watch {
	s := ws.s
	w := &Watch{fired: make(chan struct{})}
	s.Background(func(ctx context.Context) {
		timer := time.NewTimer(unreadPause)
		defer timer.Stop()
		select {
		case <-timer.C:
			close(w.fired)
		case <-ctx.Done(): // the waits have ended too
		}
	})
	return w
}

// listings are the requests under way for the children of directories. listings has its own lock, because no
// grant and no loss depends on a listing.
type listings struct {
	mu      sync.Mutex           // protects the field below
	running map[listKey]*listing // the value is the next listing, nil if nobody has asked for one
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
	shared *listing // of everybody who asks while another listing is under way
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

// beginBehind sends a request, and the list in the same flush: the list shows the effect of the request. If
// another listing is under way, the list is the next listing, sent after the current one.
func (p *pendingList[T]) beginBehind(ctx context.Context, first *call) error {
	s, l := p.s, &p.s.listings
	if err := s.gate.hangUps.refuse(first.Op, proto.OpGetChildren2); err != nil {
		return err
	}
	t, err := s.gate.enter(ctx, 2, first.isCleanUp)
	if err != nil {
		return err
	}
	l.mu.Lock() // until the request is queued, so that the next listing is sent behind it
	isShared := p.joinLocked(l)
	if isShared {
		s.gate.sendAdmitted(t, first)
	} else {
		p.own = listCall(p.key.dir)
		s.gate.sendAdmitted(t, first, p.own)
	}
	l.mu.Unlock()
	if isShared {
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
