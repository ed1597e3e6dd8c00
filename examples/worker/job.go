package main

import (
	"context"
	"errors"
	"time"
)

// A job is what the leader has to do. It gets the context of the term, and has to return
// soon after that has ended: it holds up the next leader, or it runs beside him. A job that
// panics ends the term: the latch reports that, and another worker leads.
type job func(ctx context.Context) error

// waiting is a job that takes its time and does nothing. Put yours here.
func waiting(d time.Duration) job {
	return func(ctx context.Context) error { return rest(ctx, d) }
}

// rest waits for d. When ctx ends first it returns the cause.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// recordTimeout is how long the record of a run may hold up a step-down.
const recordTimeout = 5 * time.Second

// run runs the job once, and records that. It reports whether the record was written.
func (w *worker) run(ctx context.Context, token int64, next schedule) (recorded bool) {
	now := time.Now()
	r := runRecord{Number: next.Number, Token: token, Leader: w.id, Outcome: outcomeFailed, Due: next.Due, Began: now}
	if r.Due.IsZero() {
		r.Due = now // the first run of all
	}
	w.log.InfoContext(ctx, saysBegins, "token", token, "run", r.Number)
	defer func() { // deferred, because a run that panics has failed, too
		r.Took = time.Since(r.Began)
		recorded = w.record(ctx, r)
	}()
	err := w.job(ctx)
	switch {
	case err == nil:
		r.Outcome = outcomeDone
	case ctx.Err() != nil:
		r.Outcome = outcomeStopped
	default:
		// Not the end of the term: the next run may succeed. Where a failure is a
		// reason to let another worker lead, call term.Release here.
		w.logFailure(ctx, token, err)
	}
	return recorded
}

// record writes down a run and the time of the next one, which the database refuses if a
// later leader has claimed the job meanwhile. A run that was broken off is due again: the
// next leader makes up for it at once.
//
// The record does not end with the term's context. Work that was done, or broken off, is
// to be recorded if that is still allowed, and the clock of this process can't tell: a
// process that was paused right here would go by a clock that it has not read yet. The
// token can tell.
func (w *worker) record(ctx context.Context, r runRecord) bool {
	due := r.Due
	if r.Outcome != outcomeStopped {
		due = w.dueAfter(r)
	}
	recording, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err := w.store.record(recording, r, due); err != nil {
		w.logFailure(ctx, r.Token, err)
		return false
	}
	w.log.InfoContext(ctx, saysRuns, "token", r.Token, "run", r.Number, "outcome", r.Outcome)
	return true
}

// dueAfter returns when the run after r is due: whole intervals after r was, and after r
// began. So a run that was late delays none of the later ones, and of several that were
// missed one is made up for.
func (w *worker) dueAfter(r runRecord) time.Time {
	late := max(0, r.Began.Sub(r.Due))
	return r.Due.Add(late.Truncate(w.every) + w.every)
}

func (w *worker) logFailure(ctx context.Context, token int64, err error) {
	isStale := errors.Is(err, errStale)
	w.log.WarnContext(ctx, saysFails, "token", token, "stale", isStale, "err", err)
	if isStale {
		w.countStale(ctx)
	}
}

// countStale counts a write that was refused: for a Prometheus, and for the page.
func (w *worker) countStale(ctx context.Context) {
	w.telemetry.countStale(ctx)
	noting, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err := w.store.noteRefusal(noting); err != nil {
		w.log.WarnContext(ctx, saysFails, "err", err)
	}
}
