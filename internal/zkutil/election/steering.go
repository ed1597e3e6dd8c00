package election

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Steering is a matter of politeness. The server's order of the queue stays, and so does exclusion: a candidate
// goes ahead only because others have left the queue, in the order of every step-down, and have joined again behind.
//
// A candidate asks the candidates of lower priority ahead to yield: first the waiting ones, and the leader last, when
// nobody else is in between. So each arrival costs one change of the leader at most. Only the candidate with the highest priority
// asks. A request is written into the znode of the asked candidate: see queue.Yield.
//
// Curator's LeaderLatch, as of 5.9, sets the watch on the znode ahead once, and ignores a change of the data: it would miss the
// deletion that follows. So in an election of latches the data of a znode is written only while a steered candidate stands directly
// behind, which the server checks in the transaction that writes: whoever joins later watches another znode.

// settleTime is how long a candidate takes part before asking others to yield, so that a process which ends right after its
// start disturbs nobody. It is also the pause between two looks at the queue while others have not yielded yet.
const settleTime = 5 * time.Second

// maxHoldOff bounds the time for which a leader goes on leading when asked again after a yield: the time
// grows from settleTime with each yield. When nobody has asked for maxHoldOff, the series starts again.
const maxHoldOff = 5 * time.Minute

// steering is the part of a candidate that has a priority. Its goroutine is the only user of the fields.
type steering struct {
	c *Candidate
	s *session.Session
	q *queue.Queue

	pace     *zkutil.Pace
	holdOff  time.Duration // how long a term has to last before the leader yields to a higher priority
	askedAt  time.Time     // when another candidate has last asked
	honoured string        // name of the znode for which the candidate has yielded to a transfer; "": none

	path     string    // of the znode that joinedAt is about
	joinedAt time.Time // when path was first seen
	isAhead  bool      // nobody of lower priority is ahead of path any more, which does not change
	failure  error     // the latest; nil: none since
}

// endAttemptPause is when to look whether an ended attempt has become a term in the same moment.
const endAttemptPause = 100 * time.Millisecond

// askPause is the time for waiting candidates to make way, before the next look.
const askPause = 500 * time.Millisecond

// errYield is the cause of an attempt that ends because the candidate yields.
var errYield = errors.New("yielding to another candidate")

// runSteering asks and yields until ctx ends.
func (c *Candidate) runSteering(ctx context.Context) {
	st := &steering{
		c: c, s: c.queue.Session, q: c.queue,
		pace: zkutil.Retry{InitialInterval: settleTime, MaxInterval: maxHoldOff}.Pace(),
	}
	for ctx.Err() == nil {
		st.step(ctx)
	}
}

// step does the due work, and waits until more may be due.
func (st *steering) step(ctx context.Context) {
	path, changed := st.c.pathAndChange()
	if path != st.path {
		st.path, st.joinedAt, st.isAhead = path, time.Now(), false
	}
	if path == "" {
		awaitEither(ctx, changed, nil, 0)
		return
	}
	data, own, err := st.s.Persistent().Read(ctx, path)
	if err != nil {
		st.recordFailure(err)
		awaitEither(ctx, changed, nil, settleTime)
		return
	}
	defer st.s.ReleaseWatch(own)
	pause, err := st.act(ctx, data)
	if st.recordFailure(err); err != nil {
		pause = settleTime
	}
	awaitEither(ctx, changed, own.Fired(), pause)
}

// recordFailure logs a failure once, until another follows or none does. A znode that has just gone, or changed, is no failure.
func (st *steering) recordFailure(err error) {
	if zkutil.IsAny(err, zk.ErrNoNode, zk.ErrBadVersion, zkutil.ErrNodeDeleted, zkutil.ErrClosed, context.Canceled) {
		return
	}
	isNew := err != nil && !queue.IsSameFailure(err, st.failure)
	if st.failure = err; isNew {
		st.s.Log(slog.LevelWarn, "election can't be steered, trying again", "path", st.q.Path, "err", err)
	}
}

// awaitEither waits for one of two channels, which may be nil, for the end of ctx, or for a pause if it is positive.
func awaitEither(ctx context.Context, first, second <-chan struct{}, pause time.Duration) {
	var due <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-first:
	case <-second:
	case <-due:
	case <-ctx.Done():
	}
}

// act answers a request in the own znode, or else asks others. It returns when to look again, 0 for not before a change.
func (st *steering) act(ctx context.Context, data []byte) (again time.Duration, err error) {
	request, isAsked := queue.ParseYield(data)
	if !isAsked || request.Kind == queue.Stay {
		return st.ask(ctx)
	}
	contenders, own, err := st.list(ctx)
	if err != nil || own < 0 {
		return settleTime, err
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
	case target < 0: // it has left
	case request.Kind == queue.YieldToTransfer && isBehind:
		st.honoured = request.Target
		return st.yield(request), nil
	case request.Kind == queue.YieldToTransfer:
		st.honoured = request.Target
	case isBehind && theirs > priority:
		return st.yield(request), nil
	}
	isRestored, err := st.restoreID(ctx, request, contenders, own)
	if err != nil {
		return settleTime, err
	}
	again, err = st.ask(ctx)
	if !isRestored && again == 0 {
		again = settleTime
	}
	return again, err
}

// yield leaves the position, and returns when to look again.
func (st *steering) yield(request queue.Yield) (again time.Duration) {
	term := st.c.termAt(st.path)
	if term == nil {
		st.c.endAttempt()
		return endAttemptPause
	}
	if !term.Stands() {
		return settleTime // its work goes on
	}
	if request.Kind != queue.YieldToTransfer {
		if rest := st.restOfTerm(term); rest > 0 {
			return rest
		}
		st.holdOff, _ = st.pace.Next()
	}
	_ = term.Yield() // a term that was lost ends as well
	return settleTime
}

// restOfTerm returns for how long the candidate goes on leading although another one asks.
func (st *steering) restOfTerm(term *session.Entry) time.Duration {
	if time.Since(st.askedAt) > maxHoldOff {
		st.holdOff = 0
		st.pace.Reset()
	}
	st.askedAt = time.Now()
	return st.holdOff - time.Since(term.GrantedAt())
}

// restoreID takes a request that has no object back: the znode gets its id again. isRestored is false while the znode may not be
// written.
func (st *steering) restoreID(ctx context.Context, request queue.Yield, contenders []queue.Contender, own int) (isRestored bool, err error) {
	if !mayWrite(st.q, contenders, own) {
		return false, nil
	}
	n, err := st.s.Persistent().ReadOnce(ctx, st.path)
	if err != nil {
		return false, err
	}
	if now, ok := queue.ParseYield(n.Data); !ok || now.Target != request.Target || now.Kind != request.Kind {
		return true, nil // another request has come
	}
	return true, write(ctx, st.q, contenders, own, request.ID, n.Stat.Version)
}

// ask asks the candidates of lower priority ahead to yield, once this candidate has taken part for settleTime.
func (st *steering) ask(ctx context.Context) (again time.Duration, err error) {
	if st.isAhead {
		return 0, nil
	}
	if rest := settleTime - time.Since(st.joinedAt); rest > 0 {
		return rest, nil
	}
	contenders, own, err := st.list(ctx)
	if err != nil || own < 0 {
		return settleTime, err
	}
	asked, isAhead := toAsk(st.q, contenders, own)
	if st.isAhead = isAhead; isAhead || st.isHonouredIn(contenders[:own]) {
		return settleTime, nil
	}
	for _, i := range asked {
		if err := askToYield(ctx, st.q, contenders, i, contenders[own].Name, queue.YieldToPriority); err != nil {
			return settleTime, err
		}
	}
	if own > 1 && len(asked) > 0 {
		return askPause, nil // the leader is next
	}
	return settleTime, nil
}

// isHonouredIn reports whether the candidate for which this one has yielded to a transfer is ahead.
func (st *steering) isHonouredIn(ahead []queue.Contender) bool {
	return slices.ContainsFunc(ahead, func(other queue.Contender) bool { return other.Name == st.honoured })
}

// toAsk returns the indexes of those whom the contender at index own asks to yield. isAhead reports that the contender will never
// have to ask anybody.
//
// The contender asks nobody if a contender of a higher priority takes part, or another of the same priority is ahead, who asks. The
// leader is asked only if nobody else is in between: an unsteered contender in between would lead.
func toAsk(q *queue.Queue, contenders []queue.Contender, own int) (asked []int, isAhead bool) {
	priority, _ := contenders[own].Priority()
	isAhead, isBest := true, true
	for i, other := range contenders {
		theirs, isSteered := other.Priority()
		switch {
		case !isSteered || i == own:
		case theirs > priority || theirs == priority && i < own:
			isBest = false
		case i < own && theirs < priority:
			isAhead = false
			if (i > 0 || own == 1) && mayWrite(q, contenders, i) {
				asked = append(asked, i)
			}
		}
	}
	if !isBest {
		asked = nil
	}
	return asked, isAhead
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

// askToYield asks the contender at an index to yield to another one, the target.
func askToYield(ctx context.Context, q *queue.Queue, contenders []queue.Contender, asked int, target string, kind queue.YieldKind) error {
	return request(ctx, q, contenders, asked, queue.Yield{Kind: kind, Target: target})
}

// request writes a request into the znode of the steered contender at an index, unless it has the same request already, or one that
// prevails.
func request(ctx context.Context, q *queue.Queue, contenders []queue.Contender, asked int, request queue.Yield) error {
	n, err := q.Session.Persistent().ReadOnce(ctx, zkutil.Join(q.Dir, contenders[asked].Name))
	if err != nil {
		return ignoreGone(err)
	}
	request.ID = n.Data
	if earlier, ok := queue.ParseYield(n.Data); ok {
		if !prevails(request, earlier) {
			return nil
		}
		request.ID = earlier.ID
	} else if string(n.Data) == session.Revocation {
		return nil
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

// mayWrite reports whether the data of the contender at an index may be changed: see the beginning of this file.
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
		return q.Session.Persistent().WriteIf(ctx, path, data, version)
	}
	_, err := q.Session.Persistent().WriteGuarded(ctx, session.Guarded{
		Guard: zkutil.Join(q.Dir, contenders[at+1].Name), Path: path, Data: data, Version: version,
	})
	return err
}

// ignoreGone returns nil for a contender that has left, or has changed meanwhile, or whose follower has left.
func ignoreGone(err error) error {
	if zkutil.IsAny(err, zk.ErrNoNode, zk.ErrBadVersion, zkutil.ErrNodeDeleted) {
		return nil
	}
	return err
}
