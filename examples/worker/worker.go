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

// storePause is how long a leader waits after the database has failed.
const storePause = 5 * time.Second

// worker is one participant in the election, and what it does when it leads.
type worker struct {
	id    string
	store *store
	job   job
	every time.Duration
	log   *slog.Logger

	telemetry *telemetry      // nil: nobody scrapes it
	client    *recipes.Client // set by enter
	latch     *latch.LeaderLatch
	gaveUp    chan error // gets the one error that a latch gives up for
}

// enter makes the worker's latch. The work belongs into the latch's listener: it gets
// the term, and a latch that steps down waits for it to return before it lets the
// next leader in. Work that is started elsewhere, behind Await say, is not waited for.
//
// The latch logs what keeps it from the election, and goes on until it is over.
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

// leave hands over at once: it ends the term, waits until lead has returned, and
// deletes the znode, upon which the next in the queue leads.
func (w *worker) leave() error { return w.latch.Close() }

// lead serves one term: it runs the job whenever it is due, for as long as the term lasts.
// The latch calls it; calls never overlap.
//
// Each round has three steps. It claims the job with the term's token, which shuts out
// every earlier leader, and reads when the next run is due; it waits for that and runs the
// job; and it records the run and the time of the next one.
func (w *worker) lead(term *recipes.Lease) {
	ctx, token := term.Context(), term.FencingToken()
	w.log.InfoContext(ctx, saysLeads, "token", token)
	defer func() {
		w.log.InfoContext(ctx, saysEnds, "token", token, "valid", end(term), "err", context.Cause(ctx))
	}()

	for w.latch.HasLeadership() { // goes by the clock: after a pause ctx may end a moment late
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

// wait returns how long to wait for a run that is due. An interval is enough: a time that
// is further ahead comes from a longer interval than today's, or from a wrong clock.
func (w *worker) wait(due time.Time) time.Duration { return min(time.Until(due), w.every) }

// end is when a term that is over was certainly valid last. A leader that was paused
// learns of its loss late, but the clock was right all along.
func end(term *recipes.Lease) time.Time {
	now := time.Now()
	if trusted := term.TrustedUntil(); trusted.Before(now) {
		return trusted
	}
	return now
}

// isLeader tells whether this worker leads. For a moment after the start nobody knows;
// "no" would be a guess then, so it waits for the first decision, for as long as ctx, and
// then says what is in the way, if anything is.
//
// The answer may be outdated when it is read: it is good for choosing where to send a
// request, and no protection for what the request does. That is the token's part.
func (w *worker) isLeader(ctx context.Context) (bool, error) {
	select {
	case <-w.latch.Decided():
		return w.latch.HasLeadership(), nil
	case <-ctx.Done():
		return false, errors.Join(context.Cause(ctx), w.latch.Err())
	}
}
