package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// PermitMarker stands before the number in the names of a semaphore's permits.
const PermitMarker = "lease-"

// Permits are the permits of a semaphore: Curator's layout in two directories. A contender that wants
// permits first acquires Turn, which is a mutex, and keeps it while it waits for room and takes its
// permits. So whoever has come first is served first, however many permits it wants.
//
// The znodes of the permits alone decide who holds one: those with the lowest numbers, as many as the
// limit says. So the limit is kept even if a contender loses its turn and does not know it yet.
type Permits struct {
	Turn  *Queue // of those who want permits
	Taken *Queue // of those who hold them; Acquire sets the rule
	Limit func(ctx context.Context) (Limit, error)
}

// Limit is how many permits there are.
type Limit struct {
	N       int
	Changed *session.Watch // fires when N may have changed; nil: it never does
}

func (l Limit) mayHaveChanged() bool { return l.Changed != nil && l.Changed.HasFired() }

// changed is closed when N may have changed; nil if it never does.
func (l Limit) changed() <-chan struct{} {
	if l.Changed == nil {
		return nil
	}
	return l.Changed.Fired()
}

// UpTo returns the rule of permits: the first n contenders of the queue wait for nobody.
func UpTo(n int) Rule {
	return func(_ []Contender, own int) int { return max(own-n, -1) }
}

// Acquire waits until n permits are free, and nobody who has come before waits for some, and takes them
// all, as a part of an acquisition, which the caller ends. After an error it has none. If ctx ends first, the error
// is an InterruptedError.
func (p *Permits) Acquire(ctx context.Context, n int, mayWait bool, a *session.Acquisition) ([]*session.Entry, error) {
	s := p.Turn.Session
	caller, startedAt := ctx, time.Now()
	ctx, cancel := s.WhileOpen(ctx)
	defer cancel()
	s.Retain()
	defer s.Release()
	place, err := p.Turn.takePlace(ctx, p.Turn.Dir, p.bytes(n), mayWait)
	if err != nil {
		return nil, interrupted(caller, err, WaitStatus{}, startedAt)
	}
	defer place.End()
	policy := s.Config().Retry
	policy.MaxElapsed = 0 // because the time spent in the queue is no failure
	isLost := func(err error) bool { return errors.Is(err, zkutil.ErrContenderLost) }
	status := newWaitStatus(p.Turn, startedAt)
	status.holders = p.Taken
	entries, err := zkutil.RepeatWhile(ctx, policy, isLost, func() ([]*session.Entry, error) {
		turn, err := p.Turn.joinAndWait(ctx, place, mayWait, status)
		if err != nil {
			return nil, err
		}
		status.Position, status.Holder = 1, Participant{}
		entries, err := p.takeInTurn(ctx, turn, place, n, mayWait, status)
		if err == nil {
			err = p.handOver(ctx, turn, entries)
		}
		if err != nil {
			p.Turn.leaveAll(ctx, []*session.Entry{turn}) // waits, so that our own turn is not in the way of our next request
		}
		return entries, err
	})
	a.SetAhead(status.ahead)
	return entries, interrupted(caller, err, *status, startedAt)
}

// handOver passes the turn on. It fails if the permits have been lost meanwhile.
func (p *Permits) handOver(ctx context.Context, turn *session.Entry, entries []*session.Entry) error {
	p.passTurn(ctx, turn)
	isOld := func(entry *session.Entry) bool { return time.Since(entry.GrantedAt()) > session.WatchOwnAfter }
	if !slices.ContainsFunc(entries, isOld) {
		return nil
	}
	return p.checkTaken(ctx, entries) // because a deletion since then may not be known
}

// passTurn leaves the turn when the permits are taken. It waits until the znode of the turn is gone, so that
// it is not in the way of our next request, but not without a connection: the permits are good meanwhile.
func (p *Permits) passTurn(ctx context.Context, turn *session.Entry) {
	s := p.Turn.Session
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if !s.Background(func(tasks context.Context) { // ends with passTurn
		for now := s.Snapshot(); ; now = s.Snapshot() {
			if !s.IsConnected() {
				stop()
				return
			}
			select {
			case <-now.Changed:
			case <-ctx.Done():
				return
			case <-tasks.Done():
				return
			}
		}
	}) {
		return // the session has ended, and its holds with it
	}
	p.Turn.leaveAll(ctx, []*session.Entry{turn})
}

// checkTaken fails if one of the permits has been lost. The session may not know that yet, so the znodes
// are looked for.
func (p *Permits) checkTaken(ctx context.Context, entries []*session.Entry) error {
	taken, err := session.Repeat(ctx, p.Taken.Session, func() ([]Contender, error) { return p.Taken.listContenders(ctx) })
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		p.Taken.leaveAll(ctx, entries)
		return err
	}
	for _, entry := range entries {
		_, name := zkutil.Split(entry.Path())
		if !slices.ContainsFunc(taken, func(c Contender) bool { return c.Name == name }) {
			p.Taken.leaveAll(ctx, entries)
			return zkutil.ContenderLost(zkutil.ErrNodeDeleted)
		}
	}
	return p.Taken.checkAll(ctx, entries)
}

// takeInTurn takes n permits while the turn stands. If that is lost, somebody else may have it, and the
// error makes the contender join again at the tail. The loss ends the wait, but no request under way:
// whoever tries in vain returns when its permits are gone, those of a lost turn too.
func (p *Permits) takeInTurn(ctx context.Context, turn *session.Entry, place *session.Place, n int, mayWait bool, status *WaitStatus) ([]*session.Entry, error) {
	entries, err := p.awaitRoom(ctx, turn, place, n, mayWait, status)
	loss := turn.Loss()
	if loss == nil || ctx.Err() != nil || errors.Is(loss, zkutil.ErrClosed) {
		return entries, err
	}
	p.Taken.leaveAll(ctx, entries)
	return nil, zkutil.ContenderLost(loss)
}

// awaitRoom waits until n permits are free, and takes them. The first look needs no watch. Before it
// waits it sets one, and looks again, because permits may have become free in between.
func (p *Permits) awaitRoom(ctx context.Context, turn *session.Entry, place *session.Place, n int, mayWait bool, status *WaitStatus) ([]*session.Entry, error) {
	s := p.Taken.Session
	limit, err := p.Limit(ctx)
	if err != nil {
		return nil, err
	}
	var freed *session.Watch // fires when a permit was given back; nil: not set yet
	for {
		now := s.Snapshot()
		entries, missing, err := p.tryTake(ctx, place, n, limit.N, status)
		if !errors.Is(err, zkutil.ErrNotAcquired) {
			return entries, err
		}
		if status.ahead == 0 {
			status.ahead = missing
		}
		if !mayWait {
			return nil, err
		}
		if freed != nil && !freed.HasFired() && !limit.mayHaveChanged() {
			if err := p.awaitChange(ctx, now, freed.Fired(), limit.changed(), turn, status); err != nil {
				return nil, err
			}
		}
		if limit, err = p.Limit(ctx); err != nil {
			return nil, err
		}
		if freed, err = p.watchTaken(ctx); err != nil {
			return nil, err
		}
	}
}

// watchTaken returns a watch that fires when a permit was taken or given back.
func (p *Permits) watchTaken(ctx context.Context) (*session.Watch, error) {
	return session.Repeat(ctx, p.Taken.Session, func() (*session.Watch, error) {
		return p.Taken.Session.WatchArrival(ctx, p.Taken.Dir)
	})
}

// awaitChange blocks until one of the channels is closed, or the connection is another one than before. It
// fails when the turn is lost.
func (p *Permits) awaitChange(ctx context.Context, before session.Snapshot, a, b <-chan struct{}, turn *session.Entry, status *WaitStatus) error {
	s := p.Taken.Session
	slow, long := time.NewTimer(status.untilSlow()), time.NewTimer(time.Until(status.startedAt.Add(holderAfter)))
	defer slow.Stop()
	defer long.Stop()
	for now := before; now.Epoch == before.Epoch && now.ID == before.ID; now = s.Snapshot() {
		select {
		case <-a:
			return nil
		case <-b:
			return nil
		case <-now.Changed:
		case <-slow.C:
			status.warnIfSlow(p.Turn, turn.Path())
		case <-long.C:
			p.readHolder(ctx, status)
		case <-turn.Context().Done():
			return zkutil.ContenderLost(context.Cause(turn.Context())) //nolint:contextcheck // the turn has a context of its own
		case <-ctx.Done():
			return zkutil.Interrupted(ctx, nil)
		}
	}
	return nil
}

// holderAfter is how long a wait for permits has to last until the holder of the first one is read for the
// WaitError. Most waits are shorter, and cost no read.
const holderAfter = time.Second

// recordFirst takes note of the first permit.
func (p *Permits) recordFirst(taken []Contender, status *WaitStatus) {
	if len(taken) == 0 {
		status.Holder = Participant{}
	} else if path := zkutil.Join(p.Taken.Dir, taken[0].Name); status.Holder.Path != path {
		status.Holder = Participant{Path: path}
	}
}

// readHolder reads who has the first permit, unless that is known. After a failure it stays unknown.
func (p *Permits) readHolder(ctx context.Context, status *WaitStatus) {
	path := status.Holder.Path
	if path == "" || status.Holder.Token != 0 {
		return
	}
	if node, err := p.Taken.Session.ReadPeer(ctx, path); err == nil {
		status.Holder = participantOf(path, node)
	}
}

// tryTake takes n permits if so many are free. Otherwise it returns ErrNotAcquired, and how many have to be given
// back first, takes none, and records the first permit in status.
func (p *Permits) tryTake(ctx context.Context, place *session.Place, n, limit int, status *WaitStatus) (entries []*session.Entry, missing int, err error) {
	taken, err := session.Repeat(ctx, p.Taken.Session, func() ([]Contender, error) { return p.Taken.listContenders(ctx) })
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, 0, err
	}
	if missing = len(taken) + n - limit; missing > 0 {
		p.recordFirst(taken, status)
		return nil, missing, zkutil.ErrNotAcquired
	}
	q := *p.Taken
	q.Rule = UpTo(limit)
	entries, err = q.acquireAll(ctx, place, n)
	return entries, 1, err
}
