package permits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
)

// Pool is the permits of a semaphore: Curator's layout in two directories. A contender for permits first acquires Turn, which is a mutex,
// and keeps the turn while waiting for room and taking its permits. So contenders are served in the order of their arrival, however many
// permits each of them wants.
//
// Only the znodes of the permits decide who holds a permit. The holders are the contenders with the lowest numbers, as many as
// the limit says. So the limit is kept even if a contender loses its turn and does not know of the loss yet.
type Pool struct {
	Turn  *queue.Queue // of the contenders for permits
	Taken *queue.Queue // of the holders of permits; Acquire sets the rule
	Limit func(ctx context.Context) (Limit, error)
}

// Limit is the number of permits.
type Limit struct {
	N       int
	Changed *session.Watch // fires when N may have changed; nil if N never changes
}

// ErrAboveLimit is matched by the error of a request for more permits than a shared limit.
var ErrAboveLimit = errors.New("more permits than the shared limit")

// errTakenOutOfTurn means that another contender, which has lost its turn or is of a program that uses no turns, took permits meanwhile.
var errTakenOutOfTurn = errors.New("others took the permits out of turn")

// aboveLimitError matches ErrAboveLimit and ErrNotAcquired.
type aboveLimitError struct{ n, limit int }

func (e aboveLimitError) Error() string {
	return fmt.Sprintf("%d permits: more than the shared limit of %d", e.n, e.limit)
}

func (aboveLimitError) Is(target error) bool {
	return target == ErrAboveLimit || target == zkutil.ErrNotAcquired
}

func (l Limit) mayHaveChanged() bool { return l.Changed != nil && l.Changed.HasFired() }

// changed returns a channel that is closed when N may have changed, or nil if N never changes.
func (l Limit) changed() <-chan struct{} {
	if l.Changed == nil {
		return nil
	}
	return l.Changed.Fired()
}

// Acquire waits until n permits are free and no earlier contender waits, and takes all n permits, as a part of an acquisition, which the
// caller has to end. After an error the caller has no permit. If ctx ends first, the error is an InterruptedError.
func (p *Pool) Acquire(ctx context.Context, n int, mayWait bool, a *trace.Acquisition) ([]*session.Entry, error) {
	s := p.Turn.Session
	caller, startedAt := ctx, time.Now()
	ctx, cancel := s.WhileOpen(ctx)
	defer cancel()
	s.Retain()
	defer s.Release()
	reservation, err := p.Turn.Reserve(ctx, p.bytes(n), mayWait)
	if err != nil {
		return nil, queue.Interrupted(caller, err, queue.WaitStatus{}, startedAt)
	}
	defer reservation.End()
	policy := s.Config().Retry
	policy.MaxElapsed = 0 // because the time spent in the queue is no failure
	isLost := func(err error) bool { return errors.Is(err, zkutil.ErrContenderLost) }
	status := queue.NewWaitStatus(p.Turn, startedAt)
	status.SetHolders(p.Taken)
	entries, err := zkutil.RepeatWhile(ctx, policy, isLost, func() ([]*session.Entry, error) {
		for {
			entries, err := p.acquireOnce(ctx, reservation, n, mayWait, status)
			if !mayWait || !errors.Is(err, ErrAboveLimit) {
				return entries, err
			}
			if err := p.awaitLimit(ctx, n, status); err != nil {
				return nil, err
			}
		}
	})
	a.SetAhead(status.Ahead)
	return entries, queue.Interrupted(caller, err, *status, startedAt)
}

// acquireOnce joins the queue of the turn at the tail, and takes n permits in its turn. For more permits than the limit, the
// error is ErrAboveLimit.
func (p *Pool) acquireOnce(ctx context.Context, reservation *budget.Reservation, n int, mayWait bool, status *queue.WaitStatus) ([]*session.Entry, error) {
	turn, err := p.Turn.JoinAndWait(ctx, reservation, mayWait, status)
	if err != nil {
		return nil, err
	}
	status.Position, status.Holder = 1, queue.Participant{}
	entries, err := p.awaitRoom(ctx, turn, reservation, n, mayWait, status)
	if err != nil {
		_ = turn.EndWhole().Await(ctx.Done()) // waits, so that our own turn is not in the way of our next request
	}
	return entries, err
}

// awaitLimit waits until the limit allows n permits. The request has no turn meanwhile, so that requests for fewer permits are served.
func (p *Pool) awaitLimit(ctx context.Context, n int, status *queue.WaitStatus) error {
	s := p.Turn.Session
	status.Position = 0
	for {
		limit, err := p.Limit(ctx)
		if err != nil || n <= limit.N {
			s.ReleaseWatch(limit.Changed)
			return err
		}
		status.SetReason(aboveLimitError{n, limit.N})
		if s.MayWarnOf("above the limit: " + p.Turn.Dir) {
			s.Log(slog.LevelWarn, "request exceeds the shared limit; waiting until the limit is raised", "path", p.Turn.Path, "permits", n, "limit", limit.N)
		}
		select {
		case <-limit.changed():
		case <-ctx.Done():
			err = zkutil.Interrupted(ctx, nil)
		}
		s.ReleaseWatch(limit.Changed)
		if err != nil {
			return err
		}
	}
}

// awaitRoom waits until n permits are free, and takes n permits in exchange for the turn. The first look needs no watch. Before the wait,
// awaitRoom sets a watch and looks again, because permits may be released in between. A loss of the turn ends the wait. Then another contender
// may have the turn, and the error makes this one join again at the tail.
func (p *Pool) awaitRoom(ctx context.Context, turn *session.Entry, reservation *budget.Reservation, n int, mayWait bool, status *queue.WaitStatus) ([]*session.Entry, error) {
	s := p.Taken.Session
	limit, err := p.Limit(ctx)
	if err != nil {
		return nil, err
	}
	var freed *session.Watch // fires when a permit was given back; nil if not set yet
	defer func() {
		s.ReleaseWatch(limit.Changed)
		s.ReleaseWatch(freed)
	}()
	for {
		now := s.Snapshot()
		entries, taken, err := p.take(ctx, turn, reservation, n, limit.N, mayWait, status)
		if !errors.Is(err, zkutil.ErrNotAcquired) {
			return entries, err
		}
		if err := recordMissing(n, max(1, len(taken)+n-limit.N), limit.N, mayWait, status); err != nil {
			return nil, err
		}
		if freed != nil && !freed.HasFired() && !limit.mayHaveChanged() {
			if err := p.awaitChange(ctx, now, freed.Fired(), limit.changed(), turn, status); err != nil {
				return nil, err
			}
		}
		s.ReleaseWatch(limit.Changed)
		if limit, err = p.Limit(ctx); err != nil {
			return nil, err
		}
		s.ReleaseWatch(freed)
		if freed, err = p.watchTaken(ctx); err != nil {
			return nil, err
		}
	}
}

// take is tryTake. A request that may not wait for others waits for the permits that the session itself is deleting, if enough are free
// without those.
func (p *Pool) take(
	ctx context.Context, turn *session.Entry, reservation *budget.Reservation, n, limit int, mayWait bool, status *queue.WaitStatus,
) (entries []*session.Entry, taken []queue.Contender, err error) {
	departures := p.Taken.Session.NewDepartureWait()
	isRefused := func(isDeparting func(name string) bool) bool {
		stays := 0
		for _, c := range taken {
			if !isDeparting(c.Name) {
				stays++
			}
		}
		return stays+n > limit
	}
	for mayTryAgain := true; mayTryAgain; {
		entries, taken, err = p.tryTake(ctx, turn, reservation, n, limit, mayWait, status)
		if mayWait || !errors.Is(err, zkutil.ErrNotAcquired) || len(taken)+n <= limit {
			return entries, taken, err
		}
		var failure error
		if mayTryAgain, failure = departures.Await(ctx, isRefused); failure != nil {
			return nil, nil, failure
		}
	}
	return entries, taken, err
}

// recordMissing records why a request for n permits can't be served. An error means that the request must not wait in its turn: it may not
// wait at all, or the limit forbids it, and it would keep smaller requests waiting. With a limit of 0 no request fits, so that the turn delays
// no other contender.
func recordMissing(n, missing, limit int, mayWait bool, status *queue.WaitStatus) error {
	if status.Ahead == 0 {
		status.Ahead = missing
	}
	why := zkutil.ErrNotAcquired
	if n > limit {
		why = aboveLimitError{n, limit}
		status.SetReason(why)
	}
	if mayWait && (n <= limit || limit == 0) {
		return nil
	}
	return why
}

// watchTaken returns a watch that fires when a permit was taken or given back.
func (p *Pool) watchTaken(ctx context.Context) (*session.Watch, error) {
	return session.Repeat(ctx, p.Taken.Session, func() (*session.Watch, error) {
		return p.Taken.Session.WatchArrival(ctx, p.Taken.Dir)
	})
}

// awaitChange blocks until one of the channels is closed or the client has another connection, and fails when the turn is lost.
func (p *Pool) awaitChange(ctx context.Context, before session.Snapshot, a, b <-chan struct{}, turn *session.Entry, status *queue.WaitStatus) error {
	s := p.Taken.Session
	slow, long := time.NewTimer(status.UntilSlow()), time.NewTimer(queue.HolderAfter-status.Waited())
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
			status.WarnIfSlow(p.Turn, turn.Path())
			slow.Reset(status.UntilSlow())
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

// recordFirst records the first permit.
func (p *Pool) recordFirst(taken []queue.Contender, status *queue.WaitStatus) {
	if len(taken) == 0 {
		status.SetHolder(queue.Participant{})
	} else if path := zkutil.Join(p.Taken.Dir, taken[0].Name); status.Holder.Path != path {
		status.SetHolder(queue.Participant{Path: path})
	}
}

// readHolder reads the holder of the first permit, unless the holder is known. After a failure the holder stays unknown.
func (p *Pool) readHolder(ctx context.Context, status *queue.WaitStatus) {
	path := status.Holder.Path
	if path == "" || status.Holder.Token != 0 {
		return
	}
	if node, err := p.Taken.Session.ReadPeer(ctx, path); err == nil {
		status.SetHolder(queue.ParticipantOf(path, node))
	}
}

// tryTake takes n permits in exchange for the turn, if n permits are free. Otherwise tryTake returns ErrNotAcquired and the permits that were
// taken before, takes none, and records the first permit in status.
func (p *Pool) tryTake(
	ctx context.Context, turn *session.Entry, reservation *budget.Reservation, n, limit int, mayWait bool, status *queue.WaitStatus,
) (entries []*session.Entry, taken []queue.Contender, err error) {
	taken, err = session.Repeat(ctx, p.Taken.Session, func() ([]queue.Contender, error) { return p.Taken.ListContenders(ctx) })
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, nil, err
	}
	if len(taken)+n > limit {
		p.recordFirst(taken, status)
		return nil, taken, zkutil.ErrNotAcquired
	}
	q := *p.Taken
	q.Rule = queue.UpTo(limit)
	entries, err = q.Exchange(ctx, turn, reservation, n)
	if mayWait && errors.Is(err, zkutil.ErrNotAcquired) {
		err = zkutil.ContenderLost(errTakenOutOfTurn)
	}
	return entries, taken, err
}

// bytes returns the cost of n permits and of the turn in which the permits are taken. All these bytes are reserved before the turn, so that
// no holder of the turn waits for bytes.
func (p *Pool) bytes(n int) int {
	each := p.Taken.ZnodeBytes()
	if n > math.MaxInt/each/2 {
		return math.MaxInt
	}
	return p.Turn.ZnodeBytes() + n*each
}
