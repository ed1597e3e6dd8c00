package zkutil

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// place is one attempt's znode in a queue, and what the last look at it and the
// queue has shown. It belongs to the goroutine that waits, whose context ends with the
// session too: see Session.whileOpen.
type place struct {
	q    *Queue
	s    *Session
	path string
	self Contender

	epoch   uint64      // of the connection at the last look
	owner   int64       // session of the znode
	token   int64       // czxid of the znode
	own     *Watch      // on the znode
	revoked bool        // a revocation has been seen already
	twins   []Contender // other znodes of our uuid, which are being deleted

	blocker string // path of the contender to wait for; "": none
	next    bool   // nobody else stands in the way once the blocker is gone

	standing *Standing // as of the last look; nil if nobody asks for it
}

// turn waits until nobody is ahead, and takes the hold.
func (p *place) turn(ctx context.Context, wait bool) (*Entry, error) {
	for {
		if err := p.s.apart(ctx, func() error { return p.look(ctx) }); err != nil {
			return nil, err
		}
		if p.blocker != "" {
			if !wait {
				return nil, ErrNotAcquired
			}
			if mine, err := p.wait(ctx); err != nil {
				return nil, err
			} else if !mine {
				continue
			}
		}
		entry, err := p.grantProven(ctx)
		if !errors.Is(err, errStale) {
			return entry, err
		}
	}
}

// grantProven is grant once the session is proven. The queue is not read again for that, because
// the contenders ahead can only become fewer: a newcomer has a higher number. See Rule.
func (p *place) grantProven(ctx context.Context) (*Entry, error) {
	var began time.Time // of the latest proof; zero: none yet
	for {
		entry, err := p.grant(ctx)
		if !errors.Is(err, errUntrusted) {
			return entry, err
		}
		if !began.IsZero() { // a gap is so near that no proof is enough yet
			Pause(ctx, p.s.period()/2-time.Since(began))
		}
		began = time.Now()
		if err := p.prove(ctx); err != nil {
			return nil, err
		}
	}
}

// look reads the own znode and the queue, side by side. The own znode is read again
// only if it may have changed without our hearing of it.
func (p *place) look(ctx context.Context) error {
	_, err := retry(ctx, p.s.cfg.Retry, p.s.judge(ctx), func() (struct{}, error) {
		return struct{}{}, p.lookOnce(ctx)
	})
	return err
}

func (p *place) lookOnce(ctx context.Context) error {
	p.s.mu.Lock()
	epoch, lost := p.s.epoch, p.owner != 0 && p.owner != p.s.id
	p.s.mu.Unlock()
	if lost {
		return lostPlace(ErrSessionLost)
	}
	var reading *watchedRead
	if p.own == nil || p.epoch != epoch || p.own.hasFired() {
		r, err := p.s.startRead(ctx, p.path)
		if err != nil {
			return err
		}
		reading = &r
	}
	queue, err := p.q.list(ctx)
	if reading != nil {
		if err := p.readOwn(ctx, reading); err != nil {
			return err
		}
	}
	if errors.Is(err, zk.ErrNoNode) {
		return lostPlace(ErrNodeDeleted)
	}
	if err != nil {
		return err
	}
	p.epoch = epoch
	queue = p.withoutTwins(ctx, queue)
	own, listed := slices.BinarySearchFunc(queue, p.self, Contender.compare)
	if !listed {
		return lostPlace(ErrNodeDeleted)
	}
	p.blocker, p.next = "", false
	if p.standing != nil {
		*p.standing = Standing{own + 1, Participant{Path: Join(p.q.Dir, queue[0].Name)}}
	}
	if b := p.q.Rule(queue, own); b >= 0 {
		p.blocker = Join(p.q.Dir, queue[b].Name)
		// Only an own connection tells events in their order, see wait.
		p.next = b == 0 && p.s.wire != nil && p.q.Rule(queue[1:], own-1) < 0
	}
	return nil
}

// withoutTwins returns the queue without the other znodes that carry our uuid, and has them
// deleted: they are ours, made by a create that was executed twice, and whoever waited for
// one would wait for himself.
func (p *place) withoutTwins(ctx context.Context, queue []Contender) []Contender {
	uuid := protectionOf(p.self.Name)
	isTwin := func(c Contender) bool { return uuid != "" && c != p.self && protectionOf(c.Name) == uuid }
	if !slices.ContainsFunc(queue, isTwin) {
		return queue
	}
	alone := make([]Contender, 0, len(queue)) // the listing is shared
	for _, c := range queue {
		switch {
		case !isTwin(c):
			alone = append(alone, c)
		case !slices.Contains(p.twins, c):
			p.twins = append(p.twins, c)
			path := Join(p.q.Dir, c.Name)
			p.s.log(slog.LevelWarn, "second znode of our own in the queue: deleting it", "znode", path)
			leaves(ctx, p.s.remove(path).done)
		}
	}
	return alone
}

// readOwn reads the own znode. That one read gives the token, the owner, a watch
// for deletion and revocation, and a revocation that has come already.
func (p *place) readOwn(ctx context.Context, reading *watchedRead) error {
	n, own, err := reading.wait(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		return lostPlace(ErrNodeDeleted)
	}
	if err != nil {
		return err
	}
	p.own, p.owner, p.token = own, n.stat.EphemeralOwner, n.stat.Czxid
	p.revoked = p.revoked || string(n.data) == Revocation
	p.s.mu.Lock()
	p.s.nodes[p.path] = struct{}{} // what can be read can be checked
	p.s.mu.Unlock()
	return nil
}

// wait blocks until the blocker or anything of ours has changed. It reports true if
// that alone makes it our turn: the blocker was the only one ahead and is gone. Our
// own znode's deletion would have been told before, by a server that tells such things.
func (p *place) wait(ctx context.Context) (mine bool, err error) {
	var blocker *Watch
	err = p.s.apart(ctx, func() (err error) {
		blocker, err = p.watchBlocker(ctx)
		return err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if p.standing != nil && p.standing.Holder.Path == p.blocker {
		p.standing.Holder.Data = blocker.data
	}
	if p.q.Behind != nil { // after the watch, because a server that refuses to set it is still in the way
		p.q.Behind()
	}
	for {
		p.s.mu.Lock()
		stale, changed := p.stale(), p.s.changed
		p.s.mu.Unlock()
		if stale {
			return false, nil
		}
		select {
		case <-blocker.fired:
			return p.next && blocker.gone() && !p.s.wire.isDeaf(), nil
		case <-p.own.fired:
			return false, nil
		case <-changed:
		case <-ctx.Done():
			return false, interrupted(ctx, nil)
		}
	}
}

// watchBlocker fails if the blocker may not be read, unless it is a candidate that waits: that
// one has no caller to tell, and goes by the clock.
func (p *place) watchBlocker(ctx context.Context) (*Watch, error) {
	watch := p.s.watch
	if p.q.Keep {
		watch = p.s.watchPeer
	}
	return retry(ctx, p.s.cfg.Retry, p.s.judge(ctx), func() (*Watch, error) { return watch(ctx, p.blocker) })
}

// stale reports whether the last look may no longer hold: the connection was away,
// or the session is another. A mere disconnect keeps the place. Called under s.mu.
func (p *place) stale() bool { return p.epoch != p.s.epoch || p.owner != p.s.id }

// grant makes the place a hold. It is one step with regard to every change of the
// session, so that nothing is granted that has been lost already.
func (p *place) grant(ctx context.Context) (*Entry, error) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, ErrClosed
	case p.owner != s.id, p.owner != s.conn.SessionID():
		return nil, lostPlace(ErrSessionLost)
	case p.own.gone():
		return nil, lostPlace(ErrNodeDeleted)
	case p.epoch != s.epoch || p.own.hasFired():
		return nil, errStale
	case !s.trusted() || s.cfg.SuspendEnds && !s.connected:
		return nil, errUntrusted
	}
	return s.holdLocked(ctx, p), nil
}

// prove gets the proof that a grant needs: none came since the connection was away.
func (p *place) prove(ctx context.Context) error {
	_, err := retry(ctx, p.s.cfg.Retry, p.s.judge(ctx), func() (struct{}, error) {
		_, err := p.s.prove(ctx, p.path)
		return struct{}{}, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return lostPlace(ErrNodeDeleted)
	}
	return err
}

// withdraw leaves the queue. Whoever only tried gets to know when that is done; for
// the others ctx is over or the znode is lost.
func (p *place) withdraw(ctx context.Context, why error) {
	removal := p.s.remove(p.path)
	leaves(ctx, removal.done)
	if !errors.Is(why, ErrNotAcquired) {
		return
	}
	limit := time.NewTimer(p.s.cfg.OperationTimeout)
	defer limit.Stop()
	select {
	case <-removal.done:
	case <-limit.C:
	case <-ctx.Done():
	}
}

// lostPlace makes the attempt join again at the tail; cause is what its caller gets
// to see when the policy forbids that.
func lostPlace(cause error) error { return fmt.Errorf("%w: %w", errPlaceLost, cause) }
