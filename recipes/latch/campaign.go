package latch

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// The pauses after a listener has failed as leader grow from the first to the longest. A term
// shorter than the first is followed by that one.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// campaign stands for one term after the other, until ctx ends or the sequence numbers have
// run out.
func (l *LeaderLatch) campaign(ctx context.Context) {
	pace := zkutil.Retry{InitialInterval: firstPause, MaxInterval: longestPause}.Pace()
	stand := l.candidate.Stand
	for {
		entry, err := stand(ctx)
		if err != nil {
			l.end(ctx, err)
			break
		}
		l.recover()
		t := &term{lease: recipes.NewLease(entry), entry: entry, began: time.Now()}
		l.lead(ctx, t)
		stand = l.prepareNext(ctx, t, pace)
	}
	<-l.handlers.Barrier()
}

// prepareNext returns how to stand after a term: on its znode if the term was suspended, else anew,
// after a pause if a listener has failed or the term was short.
func (l *LeaderLatch) prepareNext(ctx context.Context, t *term, pace *zkutil.Pace) func(context.Context) (*zkutil.Entry, error) {
	broken, loss := t.broken.Load(), t.entry.Loss()
	if errors.Is(loss, recipes.ErrSuspended) && !broken && ctx.Err() == nil {
		pace.Reset()
		return func(ctx context.Context) (*zkutil.Entry, error) { return l.candidate.Resume(ctx, t.entry) }
	}
	l.candidate.Vacate(t.entry)
	pause, _ := pace.AfterTerm(time.Since(t.began), broken, loss) // it never gives up
	zkutil.Pause(ctx, pause)
	return l.candidate.Stand
}

// end notes why the campaign has ended.
func (l *LeaderLatch) end(ctx context.Context, err error) {
	if ctx.Err() != nil {
		err = l.candidate.Running() // closed, and what was
	}
	failure := l.opError("stand", err)
	if !errors.Is(err, recipes.ErrClosed) {
		l.report(failure)
	}
	l.decide()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble, l.failure = failure, err
	l.announce()
}

// onWaiting is called when the latch waits behind another one, which it watches.
func (l *LeaderLatch) onWaiting() {
	l.recover() // first, because who reads Err after Decided finds nothing that is over
	l.decide()
}

// lead serves one term, and ends it in the order that keeps a successor out: first the
// term's context, then the listeners' work, then the znode, which is up to the caller.
func (l *LeaderLatch) lead(ctx context.Context, t *term) {
	l.take(t)
	select {
	case <-t.entry.Context().Done():
	case <-ctx.Done():
		_ = t.entry.Leave() // a loss, if any, has been told to the listeners
	}
	for _, returned := range l.drop() {
		<-returned
	}
}

// take announces a term.
func (l *LeaderLatch) take(t *term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term = t
	l.announce()
	l.decide()
	for _, r := range l.listeners {
		l.tellBegin(r, t)
	}
}

// drop announces the end of a term. Each of the channels is closed when the calls of one
// listener have returned, those that were removed meanwhile included.
func (l *LeaderLatch) drop() (returned []<-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.announce()
	returned, l.removed = l.removed, nil
	for _, r := range l.listeners {
		l.tellEnd(r)
		returned = append(returned, r.order.Barrier())
	}
	return returned
}
