package main

import (
	"context"
	"errors"
	"time"
)

// A job is the leader's work. It gets the context of the term and has to return soon after that context ends;
// otherwise it delays the next leader, or runs beside it. A job that panics ends the term: the latch reports the
// panic, and another worker leads.
type job func(ctx context.Context) error

// waiting is a job that only takes time. Replace it by yours.
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

// run runs the job once, and records the run. It reports whether the record was written.
func (w *worker) run(ctx context.Context, token int64, next schedule) (recorded bool) {
	now := time.Now()
	r := runRecord{Number: next.Number, Token: token, Leader: w.id, Outcome: outcomeFailed, Due: next.Due, Began: now}
	if r.Due.IsZero() {
		r.Due = now // the first run of all
	}
	w.log.InfoContext(ctx, saysBegins, "token", token, "run", r.Number)
	defer func() { // deferred, because a run that panics failed, too
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
		// A failed run does not end the term, because the next run may succeed. If a failure should make another
		// worker lead, call term.Release here.
		w.logFailure(ctx, token, err)
	}
	return recorded
}

// record writes the run and the time of the next one. The database refuses the record if a later leader claimed the
// job meanwhile. An interrupted run remains due, and the next leader repeats it at once.
//
// The record outlasts the term's context. Finished or interrupted work must be recorded if still permitted, and this
// process's clock can't decide that: a process paused right here would compare an old time. The token decides.
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

// dueAfter returns when the run after r is due: whole intervals after r was due, and after the start of r. So a late
// run delays no later run, and of several missed runs one is made up for.
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
