package latch

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// The pauses after failures of a listener as leader grow from firstPause to longestPause. A term shorter than
// firstPause is followed by a pause of firstPause.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// runCampaign leads for one term after another, until ctx ends or the sequence numbers have run out.
func (l *LeaderLatch) runCampaign(ctx context.Context) {
	pace := zkutil.Retry{InitialInterval: firstPause, MaxInterval: longestPause}.Pace()
	awaitTerm := l.candidate.AwaitTerm
	for {
		entry, err := awaitTerm(ctx)
		if err != nil {
			l.recordEnd(ctx, err)
			break
		}
		l.clearTrouble()
		t := &term{lease: recipe.NewLease(entry), entry: entry, beganAt: time.Now()}
		l.serveTerm(ctx, t)
		awaitTerm = l.planNextTerm(ctx, t, pace)
	}
	<-l.handlerCalls.Barrier()
}

// planNextTerm returns the function that waits for the next term: on the same znode if the connection was suspended.
// Otherwise planNextTerm abandons the znode, and pauses if a listener failed or the term was short.
func (l *LeaderLatch) planNextTerm(ctx context.Context, t *term, pace *zkutil.Pace) func(context.Context) (*session.Entry, error) {
	hasFailed, loss := t.hasFailed.Load(), t.entry.Loss()
	if errors.Is(loss, recipes.ErrSuspended) && !hasFailed && ctx.Err() == nil {
		pace.Reset()
		return func(ctx context.Context) (*session.Entry, error) { return l.candidate.AwaitTermAfter(ctx, t.entry) }
	}
	l.candidate.Vacate(t.entry)
	pause, _ := pace.AfterTerm(time.Since(t.beganAt), hasFailed, loss) // the policy has no bound
	zkutil.Pause(ctx, pause)
	return l.candidate.AwaitTerm
}

// recordEnd records why the campaign ended.
func (l *LeaderLatch) recordEnd(ctx context.Context, err error) {
	if ctx.Err() != nil {
		err = l.candidate.CheckRunning() // ErrClosed, and whether the latch or the client was closed
	}
	if ctx.Err() == nil {
		l.candidate.LogLeft(err)
	} else {
		l.candidate.LogLeft(context.Cause(ctx))
	}
	trouble := l.base.OpError("join", err)
	if !errors.Is(err, recipes.ErrClosed) {
		l.reportTrouble(trouble)
	}
	l.closeDecided()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble, l.isOverrun, l.endError = trouble, false, err
	l.changes.AnnounceLocked()
}

// onWaiting is called when the latch watches a contender ahead. lasting is ErrNotEphemeral, which becomes the
// trouble, if the znode ahead belongs to no latch.
func (l *LeaderLatch) onWaiting(_ int, _ queue.Participant, lasting error) {
	if lasting == nil {
		l.clearTrouble() // first, so that Err, called after Decided, does not return a trouble already over
	}
	l.closeDecided()
}

// serveTerm ends a term in the order that keeps a successor from leading meanwhile: first the term's context,
// then the listeners' work, then the znode, which is left to the caller.
func (l *LeaderLatch) serveTerm(ctx context.Context, t *term) {
	endWatch := session.WatchWork(t.entry.Context(), func() *session.Entry { return t.entry }, l.onOverrun) //nolint:contextcheck // a term has a context of its own
	l.beginTerm(t)
	select {
	case <-t.entry.Context().Done():
	case <-ctx.Done():
		_ = t.entry.Leave() // the context of the term reports a loss to the listeners
	}
	for _, listenerDone := range l.endTerm() {
		<-listenerDone
	}
	endWatch()
	l.clearOverrun()
}

func (l *LeaderLatch) beginTerm(t *term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term = t
	l.changes.AnnounceLocked()
	l.closeDecided()
	for _, r := range l.listeners {
		l.postIsLeader(r, t)
	}
}

// endTerm returns a channel for each listener, including removed listeners. Each channel is closed when the calls of
// the listener return.
func (l *LeaderLatch) endTerm() (listenersDone []<-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes.AnnounceLocked()
	listenersDone, l.removedDone = l.removedDone, nil
	for _, r := range l.listeners {
		l.postNotLeader(r)
		listenersDone = append(listenersDone, r.calls.Barrier())
	}
	return listenersDone
}
