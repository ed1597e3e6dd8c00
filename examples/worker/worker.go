package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
)

// electionPath is where the workers meet.
const electionPath = "/worker/leader"

// storePause is the leader's pause after a failure of the database.
const storePause = 5 * time.Second

// worker is one participant in the election, with its work as the leader.
type worker struct {
	id    string
	store *store
	job   job
	every time.Duration
	log   *slog.Logger

	telemetry *telemetry      // nil: no metrics
	client    *recipes.Client // set by enter
	latch     *latch.LeaderLatch
	gaveUp    chan error // gets the single error for which a latch gives up
}

// enter creates the worker's latch. The work belongs in the latch's listener: the listener gets the term, and a latch
// that steps down waits until the listener returns before the next leader can start. The latch does not wait for work
// started elsewhere, for example after Await.
//
// The latch logs obstacles, and keeps trying.
func (w *worker) enter(client *recipes.Client) (err error) {
	w.client, w.gaveUp = client, make(chan error, 1)
	w.latch, err = latch.New(client, electionPath,
		latch.WithID(w.id), latch.WithName("job"), latch.WithListener(latch.Listener{IsLeader: w.lead}),
		latch.WithErrorHandler(func(err error) {
			if errors.Is(err, recipes.ErrSequenceExhausted) {
				w.gaveUp <- err
			}
		}))
	if err != nil {
		return err
	}
	return w.latch.Start()
}

// leave hands over at once. It ends the term, waits until lead returns, and deletes the znode, so that the next
// worker in the queue leads.
func (w *worker) leave() error { return w.latch.Close() }

// lead serves one term: it runs the job whenever it is due, for the length of the term. The latch never calls lead
// twice at once.
//
// Each round has three steps. The first claims the job with the term's token, which shuts out every earlier leader,
// and reads when the next run is due. The second waits for that time and runs the job. The third records the run and
// the time of the next one.
func (w *worker) lead(term *recipes.Lease) {
	ctx, token := term.Context(), term.FencingToken()
	w.log.InfoContext(ctx, saysLeads, "token", token)
	defer func() {
		w.log.InfoContext(ctx, saysEnds, "token", token, "valid", end(term), "err", context.Cause(ctx))
	}()

	for w.latch.HasLeadership() { // compares the clock: after a pause, ctx may end a moment late
		next, err := w.store.claim(ctx, token, w.id)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.logFailure(ctx, token, err)
			_ = rest(ctx, storePause)
			continue
		}
		_ = rest(ctx, w.wait(next.Due))
		if w.latch.HasLeadership() && !w.run(ctx, token, next) {
			_ = rest(ctx, storePause)
		}
	}
}

// wait returns how long to wait for the next run, at most an interval. A later due time is from a longer interval in
// the past, or from a wrong clock.
func (w *worker) wait(due time.Time) time.Duration { return min(time.Until(due), w.every) }

// end returns the last moment at which a term that is over was certainly valid. After a pause the leader learns of
// its loss late, but the clock was right.
func end(term *recipes.Lease) time.Time {
	now := time.Now()
	if trusted := term.TrustedUntil(); trusted.Before(now) {
		return trusted
	}
	return now
}

// isLeader reports whether this worker leads. Right after the start the answer is unknown, so isLeader waits for the
// first decision until ctx ends, and then returns the obstacle, if any.
//
// The answer may be outdated when the caller reads it. Use it to route a request, and protect the request's effect
// with the token.
func (w *worker) isLeader(ctx context.Context) (bool, error) {
	select {
	case <-w.latch.Decided():
		return w.latch.HasLeadership(), nil
	case <-ctx.Done():
		return false, errors.Join(context.Cause(ctx), w.latch.Err())
	}
}
