package election

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/znodes"
)

// Steering affects neither exclusion nor the server's order. A candidate moves ahead only because others leave the queue, in
// the order of every step-down, and join again behind.
//
// A candidate asks the candidates of lower priority ahead to yield: first the waiting ones, and the leader last, when no other
// candidate is in between. So each arrival costs one change of the leader at most. Only the candidate with the highest priority
// asks. A request is written into the znode of the asked candidate, in the format of queue.Yield.
//
// A candidate that waits for others lists the queue again when one znode changes: that of its blocker. For a candidate that is not the best,
// the blocker is the next better one, so that the end of a candidate wakes one other. A candidate with no lower priority ahead has no
// blocker. So an election at rest sends no request for its priorities.
//
// Curator's LeaderLatch, as of 5.9, sets the watch on the znode ahead once, and ignores a change of the data, so it would miss
// the later deletion. So in an election of latches the data of a znode is written only while a steered candidate stands
// directly behind, which the server checks in the transaction that writes. Candidates that join later watch another znode.

// askAfter is how long a candidate takes part before asking others to yield, so that a process which ends right after its
// start disturbs no leader.
const askAfter = 5 * time.Second

// maxHoldOff bounds the hold-off, which is how long a candidate of a higher priority has to wait for a leader that it asked.
// The hold-off grows from askAfter each time a candidate makes way for a higher priority, as the leader or in the queue.
// Candidates make way together, and so the damping does not depend on which of them leads. When no other candidate asks for
// maxHoldOff, the series starts again.
const maxHoldOff = 5 * time.Minute

// steering is the part of a candidate that has a priority. Its goroutine is the only user of the fields.
type steering struct {
	c *Candidate
	s *session.Session
	q *queue.Queue

	pace     *zkutil.Pace
	holdOff  time.Duration // see maxHoldOff
	askedAt  time.Time     // when another candidate last asked
	asker    string        // name of the znode of the candidate that the leader keeps waiting
	waitsAt  time.Time     // when asker first asked
	honoured string        // name of the znode for which the candidate yielded to a transfer; "": none

	path     string    // of the present znode
	joinedAt time.Time // when path was first seen
	listedAt time.Time // when the queue was last listed to ask others
	isAhead  bool      // no candidate of lower priority is ahead of path, which does not change
	madeWay  bool      // the hold-off has grown for path
	failure  error     // the latest; nil: none since
	failures *zkutil.Pace
}

// endAttemptPause is when to check whether an ended attempt became a term in the same moment.
const endAttemptPause = 100 * time.Millisecond

// askPause is the shortest time between two lists of the queue.
const askPause = 500 * time.Millisecond

// resumePause is when to look whether a term that ended began again on the same znode, as after a suspension.
const resumePause = time.Minute

// errYield is the cause of an attempt that ends because the candidate yields.
var errYield = errors.New("yielding to another candidate")

// runSteering asks and yields until ctx ends.
func (c *Candidate) runSteering(ctx context.Context) {
	pauses := zkutil.Retry{InitialInterval: askAfter, MaxInterval: maxHoldOff}
	st := &steering{c: c, s: c.queue.Session, q: c.queue, pace: pauses.Pace(), failures: pauses.Pace()}
	for ctx.Err() == nil {
		st.step(ctx)
	}
}

// step does the due work, and waits until more may be due.
func (st *steering) step(ctx context.Context) {
	path, changed := st.c.pathAndChange()
	if path != st.path {
		st.path, st.joinedAt, st.isAhead, st.madeWay = path, time.Now(), false, false
	}
	if path == "" {
		awaitAny(ctx, 0, changed)
		return
	}
	node, own, err := znodes.ReadAndWatch(ctx, st.s, path)
	if errors.Is(err, zk.ErrNoNode) { // the candidate joins again, but a leader only once its work ended
		awaitAny(ctx, 0, changed)
		return
	}
	if err != nil {
		awaitAny(ctx, st.pauseAfter(err), changed)
		return
	}
	defer st.s.ReleaseWatch(own)
	next, err := st.act(ctx, node.Data)
	if err != nil {
		next.pause, next.isAsked = st.pauseAfter(err), false
	} else {
		st.failure = nil
		st.failures.Reset()
	}
	if next.blocker == "" {
		awaitAny(ctx, next.pause, changed, own.Fired())
		return
	}
	node, blocker, err := znodes.ReadAndWatch(ctx, st.s, zkutil.Join(st.q.Dir, next.blocker))
	if err != nil {
		awaitAny(ctx, st.pauseAfter(err), changed, own.Fired())
		return
	}
	defer st.s.ReleaseWatch(blocker)
	_, hasRequest := queue.ParseYield(node.Data)
	if next.isAsked && !hasRequest { // it took the request back before the watch was set
		next.pause = askPause
	}
	awaitAny(ctx, next.pause, changed, own.Fired(), blocker.Fired())
}

// wakeUp is when to act again: after a pause, unless it is 0, or when the znode of the blocker changes, unless there is none.
type wakeUp struct {
	pause   time.Duration
	blocker string // its name
	isAsked bool   // the blocker was asked to yield
}

// pauseAfter logs a failure, once until another follows or none does, and returns the pause after it. A znode that is deleted, or changed,
// is no failure.
func (st *steering) pauseAfter(err error) time.Duration {
	if zkutil.IsAny(err, zk.ErrNoNode, zk.ErrBadVersion, zkutil.ErrNodeDeleted, zkutil.ErrClosed, context.Canceled) {
		return askPause
	}
	isNew := !queue.IsSameFailure(err, st.failure)
	if st.failure = err; isNew {
		st.s.Log(slog.LevelWarn, "can't steer the election; retrying", "path", st.q.Path, "err", err)
	}
	pause, _ := st.failures.Next()
	return pause
}

// awaitAny waits for one of some channels, for the end of ctx, or for a pause if it is positive.
func awaitAny(ctx context.Context, pause time.Duration, first <-chan struct{}, others ...<-chan struct{}) {
	others = append(others, nil, nil)
	var due <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-first:
	case <-others[0]:
	case <-others[1]:
	case <-due:
	case <-ctx.Done():
	}
}

// act answers a request in the own znode, or else asks others.
func (st *steering) act(ctx context.Context, data []byte) (next wakeUp, err error) {
	request, isAsked := queue.ParseYield(data)
	if !isAsked || request.Kind == queue.Stay {
		return st.ask(ctx)
	}
	contenders, own, err := st.list(ctx)
	if err != nil || own < 0 {
		return wakeUp{pause: askAfter}, err
	}
	target, isBehind := -1, false
	for i, other := range contenders {
		if other.Name == request.Target {
			target, isBehind = i, i > own
		}
	}
	priority, _ := contenders[own].Priority()
	theirs := 0
	if target >= 0 {
		theirs, _ = contenders[target].Priority()
	}
	switch {
	case target < 0: // it left
	case request.Kind == queue.YieldToTransfer && isBehind:
		st.honoured = request.Target
		return wakeUp{pause: st.yield(request)}, nil
	case request.Kind == queue.YieldToTransfer:
		st.honoured = request.Target
	case isBehind && theirs > priority:
		return wakeUp{pause: st.yield(request)}, nil
	}
	if err := st.restoreID(ctx, request, contenders, own); err != nil {
		return wakeUp{}, err
	}
	return st.ask(ctx)
}

// yield leaves the position, and returns when to look again.
func (st *steering) yield(request queue.Yield) (again time.Duration) {
	isForPriority := request.Kind == queue.YieldToPriority
	term := st.c.termAt(st.path)
	if term == nil {
		if isForPriority {
			st.makeWay()
		}
		st.c.endAttempt()
		return endAttemptPause
	}
	if !term.Stands() {
		return resumePause
	}
	if isForPriority {
		if st.asker != request.Target {
			st.asker, st.waitsAt = request.Target, time.Now()
		}
		if rest := st.holdOffNow() - time.Since(st.waitsAt); rest > 0 {
			return rest // by then, a candidate that starts and fails again and again no longer waits
		}
		st.makeWay()
	}
	_ = term.Yield() // a term that was lost ends as well
	return resumePause
}

// holdOffNow returns for how long a candidate of a higher priority has to wait, which asks now.
func (st *steering) holdOffNow() time.Duration {
	if time.Since(st.askedAt) > maxHoldOff {
		st.holdOff = 0
		st.pace.Reset()
	}
	st.askedAt = time.Now()
	return st.holdOff
}

// makeWay lets the hold-off grow, once for a znode.
func (st *steering) makeWay() {
	if st.holdOffNow(); !st.madeWay {
		st.madeWay = true
		st.holdOff, _ = st.pace.Next()
	}
}

// restoreID withdraws a request without an object, so that the znode has its id again. A znode that may not be written keeps
// the request, which has no effect.
func (st *steering) restoreID(ctx context.Context, request queue.Yield, contenders []queue.Contender, own int) error {
	if !mayWrite(st.q, contenders, own) {
		return nil
	}
	n, err := znodes.Read(ctx, st.s, st.path)
	if err != nil {
		return err
	}
	if now, ok := queue.ParseYield(n.Data); !ok || now.Target != request.Target || now.Kind != request.Kind {
		return nil // another request was written
	}
	return write(ctx, st.q, contenders, own, request.ID, n.Stat.Version)
}

// ask asks the candidates of lower priority ahead to yield, once this candidate takes part for askAfter.
func (st *steering) ask(ctx context.Context) (next wakeUp, err error) {
	if st.isAhead {
		return wakeUp{}, nil
	}
	if rest := max(askAfter-time.Since(st.joinedAt), askPause-time.Since(st.listedAt)); rest > 0 {
		return wakeUp{pause: rest}, nil
	}
	st.listedAt = time.Now()
	contenders, own, err := st.list(ctx)
	if err != nil || own < 0 {
		return wakeUp{pause: askAfter}, err
	}
	asked, blocker := toAsk(st.q, contenders, own)
	if honoured := slices.IndexFunc(contenders[:own], func(c queue.Contender) bool { return c.Name == st.honoured }); honoured >= 0 {
		asked, blocker = nil, honoured
	}
	if st.isAhead = blocker < 0; st.isAhead {
		return wakeUp{}, nil
	}
	next = wakeUp{blocker: contenders[blocker].Name, isAsked: len(asked) > 0}
	for _, i := range asked {
		err = cmp.Or(err, request(ctx, st.q, contenders, i, queue.Yield{Kind: queue.YieldToPriority, Target: contenders[own].Name}, false))
	}
	return next, err
}

// toAsk returns the indexes of the contenders that the one at index own asks to yield, and the index of its blocker: when that one leaves, or
// answers, the contender has to look again. The blocker is -1 if no contender of a lower priority is ahead, which does not change.
//
// The contender asks others only if it is the best one, which is the first of those with the highest priority. Otherwise its
// blocker is the next better one. The leader is asked only if no other is in between, because an unsteered contender in between
// would lead.
func toAsk(q *queue.Queue, contenders []queue.Contender, own int) (asked []int, blocker int) {
	priority, _ := contenders[own].Priority()
	better, unsteered := -1, -1
	isAhead := true
	for i, other := range contenders {
		theirs, isSteered := other.Priority()
		switch {
		case i == own:
		case !isSteered && i < own:
			unsteered = i
		case !isSteered:
		case theirs > priority || theirs == priority && i < own:
			if best, _ := contenders[max(better, 0)].Priority(); better < 0 || theirs <= best {
				better = i
			}
		case i < own: // of a lower priority
			isAhead = false
			if (i > 0 || own == 1) && mayWrite(q, contenders, i) {
				asked = append(asked, i)
			}
		}
	}
	switch {
	case isAhead:
		return nil, -1
	case better >= 0:
		return nil, better
	case len(asked) > 0:
		return asked, asked[len(asked)-1]
	default:
		return nil, unsteered
	}
}

// list returns the queue, and the index of the own znode, -1 if the queue lacks the znode.
func (st *steering) list(ctx context.Context) (contenders []queue.Contender, own int, err error) {
	contenders, err = st.q.ListContenders(ctx)
	_, name := zkutil.Split(st.path)
	for i, other := range contenders {
		if other.Name == name {
			return contenders, i, err
		}
	}
	return contenders, -1, err
}

// request writes a request into the znode of the steered contender at an index, unless it has the same request already, or one that
// prevails. isPatient lets each request to stay prevail.
func request(ctx context.Context, q *queue.Queue, contenders []queue.Contender, asked int, request queue.Yield, isPatient bool) error {
	n, err := znodes.Read(ctx, q.Session, zkutil.Join(q.Dir, contenders[asked].Name))
	if err != nil {
		return ignoreGone(err)
	}
	request.ID = n.Data
	if earlier, ok := queue.ParseYield(n.Data); ok {
		hasObject := earlier.Kind == queue.Stay || slices.ContainsFunc(contenders, func(c queue.Contender) bool { return c.Name == earlier.Target })
		if hasObject && !prevails(request, earlier) || isPatient && earlier.Kind == queue.Stay {
			return nil
		}
		request.ID = earlier.ID
	}
	return ignoreGone(write(ctx, q, contenders, asked, request.Encode(), n.Stat.Version))
}

// prevails reports whether a request takes the place of an earlier one.
func prevails(request, earlier queue.Yield) bool {
	switch {
	case request.Target == earlier.Target && (request.Kind == queue.Stay) == (earlier.Kind == queue.Stay):
		return false
	case request.Kind != queue.YieldToPriority:
		return true
	case earlier.Kind == queue.Stay:
		asks, _ := zkutil.NumberOf(request.Target)
		upTo, _ := zkutil.NumberOf(earlier.Target)
		return asks > upTo
	default:
		return earlier.Kind != queue.YieldToTransfer
	}
}

// isLatch reports whether Curator's LeaderLatch may take part.
func isLatch(q *queue.Queue) bool { return q.Recipe == "latch" }

// mayWrite reports whether the data of the contender at an index may be changed, as explained at the beginning of
// this file.
func mayWrite(q *queue.Queue, contenders []queue.Contender, at int) bool {
	if !isLatch(q) {
		return true
	}
	if at+1 == len(contenders) {
		return false
	}
	_, isSteered := contenders[at+1].Priority()
	return isSteered
}

// write sets the data of the contender at an index, which has a version.
func write(ctx context.Context, q *queue.Queue, contenders []queue.Contender, at int, data []byte, version int32) error {
	path := zkutil.Join(q.Dir, contenders[at].Name)
	if !isLatch(q) {
		return znodes.WriteIf(ctx, q.Session, path, data, version)
	}
	_, err := znodes.WriteGuarded(ctx, q.Session, znodes.Guarded{
		Guard: zkutil.Join(q.Dir, contenders[at+1].Name), Path: path, Data: data, Version: version,
	})
	return err
}

// ignoreGone returns nil for a contender that left or changed meanwhile, or whose follower left.
func ignoreGone(err error) error {
	if zkutil.IsAny(err, zk.ErrNoNode, zk.ErrBadVersion, zkutil.ErrNodeDeleted) {
		return nil
	}
	return err
}
