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

// worker is one participant in the election, and what it does when it leads.
type worker struct {
	id    string
	store *store
	job   job
	every time.Duration
	log   *slog.Logger

	latch *latch.LeaderLatch
}

// enter makes the worker's latch. The work belongs into the latch's listener: it gets
// the term, and a latch that steps down waits for it to return before it lets the
// next leader in. Work that is started elsewhere, behind Await say, is not waited for.
func (w *worker) enter(client *recipes.Client) (err error) {
	w.latch, err = latch.New(client, electionPath,
		latch.WithID(w.id), latch.WithListener(latch.Listener{IsLeader: w.lead}))
	if err != nil {
		return err
	}
	return w.latch.Start()
}

// leave hands over at once: it ends the term, waits until lead has returned, and
// deletes the znode, upon which the next in the queue leads.
func (w *worker) leave() error { return w.latch.Close() }

// lead serves one term: it runs the job at once, and then regularly, for as long as the
// term lasts. The latch calls it; calls never overlap.
func (w *worker) lead(term *recipes.Lease) {
	ctx, token := term.Context(), term.FencingToken()
	w.log.InfoContext(ctx, saysLeads, "token", token)
	defer func() {
		w.log.InfoContext(ctx, saysEnds, "token", token, "valid", end(term), "err", context.Cause(ctx))
	}()

	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	for w.latch.HasLeadership() { // goes by the clock: after a pause ctx may end a moment late
		if err := w.run(ctx, token); err != nil {
			// Not the end of the term: the next run may do. Where a failure is a
			// reason to let another one lead, call term.Release here.
			w.log.WarnContext(ctx, saysFails, "token", token, "stale", errors.Is(err, errStale), "err", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

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
// "no" would be a guess then, so it waits for the first decision, for as long as ctx.
//
// The answer may be outdated when it is read: it is good for choosing where to send a
// request, and no protection for what the request does. That is the token's part.
func (w *worker) isLeader(ctx context.Context) (bool, error) {
	select {
	case <-w.latch.Decided():
		return w.latch.HasLeadership(), nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// refused returns when the server refuses this worker for good, as where an ACL shuts it
// out, and says why; or when ctx ends. Nothing else tells of that: such a worker would go
// on without ever leading.
func (w *worker) refused(ctx context.Context) error {
	for {
		term, err := w.latch.Await(ctx)
		if err != nil {
			return err
		}
		select {
		case <-term.Context().Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
