package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// A job is what the leader has to do. It gets the context of the term, and has to return
// soon after that has ended: it holds up the next leader, or it runs beside him.
type job func(ctx context.Context) error

// attempt makes a panic an error: a run that has failed, and no reason to lead without
// working. The latch would contain the panic, and go on.
func (j job) attempt(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return j(ctx)
}

// waiting is a job that takes its time and does nothing. Put yours here.
func waiting(d time.Duration) job {
	return func(ctx context.Context) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// recordTimeout is how long the record of a run may hold up a step-down.
const recordTimeout = 5 * time.Second

// run runs the job once, in three steps. It claims the row of the job with the term's
// token, which shuts out every earlier leader; it does the work; and it records the run,
// which the database refuses if a later leader has claimed the row meanwhile.
//
// The record does not end with the term's context. Work that was done, or broken off, is
// to be recorded if that is still allowed, and the clock of this process can't tell: a
// process that was paused right here would go by a clock that it has not read yet. The
// token can tell.
func (w *worker) run(ctx context.Context, token int64) error {
	number, err := w.store.claim(ctx, token)
	if errors.Is(err, context.Canceled) {
		return nil // the term has ended before the run began
	}
	if err != nil {
		return err
	}
	w.log.InfoContext(ctx, saysBegins, "token", token, "run", number)

	r := runRecord{Number: number, Token: token, Leader: w.id, Outcome: outcomeDone, Began: time.Now()}
	err = w.job.attempt(ctx)
	r.Took = time.Since(r.Began)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		r.Outcome, err = outcomeStopped, nil
	default:
		r.Outcome = outcomeFailed
	}

	recording, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if rerr := w.store.record(recording, r); rerr != nil {
		return errors.Join(err, rerr)
	}
	w.log.InfoContext(ctx, saysRuns, "token", token, "run", number, "outcome", r.Outcome)
	return err
}
