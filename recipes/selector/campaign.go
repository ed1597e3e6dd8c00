package selector

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// outcome is the result of an attempt.
type outcome struct {
	ledFor  time.Duration // the running time of the function
	err     error         // of the function, or of the attempt, as an OpError
	loss    error         // the cause if the term was lost
	isFinal bool          // no further attempt would succeed
}

// runCampaign makes attempts, as long as another attempt is wanted, until ctx ends.
func (s *LeaderSelector) runCampaign(ctx context.Context) {
	pace := s.newPace()
	for s.awaitQueued(ctx) {
		s.finishAttempt(ctx, s.makeAttempt(ctx), pace)
	}
	s.mu.Lock()
	wasQueued := s.isQueued
	s.mu.Unlock()
	if wasQueued { // stopped in a pause, or before the first attempt
		s.candidate.LogLeft(context.Cause(ctx))
	}
	s.awaitHandlerCalls()
}

// awaitQueued blocks until an attempt is wanted. It returns false after the end of ctx.
func (s *LeaderSelector) awaitQueued(ctx context.Context) bool {
	return s.awaitCondition(ctx, func() bool { return s.isQueued }) == nil
}

func (s *LeaderSelector) awaitHandlerCalls() { <-s.handlerCalls.Barrier() }

func (s *LeaderSelector) newPace() *zkutil.Pace { return s.config.backoff.Pace() }

// finishAttempt reports the outcome of an attempt, and pauses if another attempt follows.
func (s *LeaderSelector) finishAttempt(ctx context.Context, o *outcome, pace *zkutil.Pace) {
	pause, attempt, isFollowed := s.planNext(ctx, o, pace)
	if !isFollowed {
		s.candidate.LogLeft(o.whyLeft(ctx))
	}
	s.postToHandler(o.err) // after planNext, so that Requeue inside the handler has an effect
	if isFollowed {
		s.logUnhandled(o.err)
	} else {
		s.handlerCalls.Post(func() { s.endRunAfter(ctx, attempt, o.err) })
	}
	zkutil.Pause(ctx, pause)
}

// errNoRequeue is the logged reason of a selector that left the election after serving a term.
var errNoRequeue = errors.New("no requeue")

// whyLeft returns the reason why no attempt follows an attempt with this outcome.
func (o *outcome) whyLeft(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case o.isFinal:
		return errors.Unwrap(o.err)
	case o.loss != nil:
		return o.loss
	case o.err != nil:
		return zkutil.ErrFailed // the error itself is reported elsewhere
	default:
		return errNoRequeue
	}
}

// makeAttempt waits for a term and serves the term. If the term was lost before the function could begin,
// makeAttempt waits for another term.
func (s *LeaderSelector) makeAttempt(ctx context.Context) *outcome {
	for {
		term, err := s.candidate.AwaitTerm(ctx)
		if err != nil {
			return s.failedAttempt(ctx, err)
		}
		if o := s.serveAndVacate(ctx, term); o != nil {
			return o
		}
	}
}

// failedAttempt returns the outcome of an attempt that failed to win a term.
func (s *LeaderSelector) failedAttempt(ctx context.Context, err error) *outcome {
	if ctx.Err() != nil {
		return &outcome{} // the selector was stopped
	}
	return &outcome{err: s.base.OpError("join", err), isFinal: true}
}

// serveAndVacate serves a term, and gives up its znode. serveAndVacate returns nil for a term that was not
// served.
func (s *LeaderSelector) serveAndVacate(ctx context.Context, term *session.Entry) *outcome {
	left := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(left)
		_ = term.LeaveFor(context.Cause(ctx))
	})
	isServed, o := s.serveTerm(term) //nolint:contextcheck // a term has a context of its own
	wasStopped := !stop()
	s.candidate.Vacate(term)
	if wasStopped {
		<-left // with the LeaseEnd of a trace: after Vacate, because a slow LeaseEnd must not delay a successor
	}
	if !isServed {
		return nil
	}
	return &o
}

// serveTerm calls the function, and ends the term in the order that keeps a successor from leading meanwhile:
// first the term's context, then the function, then the znode, which is left to the caller. A term that was
// lost before the function could begin is not served. A term over its limit counts as served, so that a pause follows.
func (s *LeaderSelector) serveTerm(term *session.Entry) (isServed bool, o outcome) {
	s.mu.Lock()
	s.term = term
	s.mu.Unlock()
	ctx := term.Context()
	if !term.Stands() {
		o.loss = term.Loss()
		return o.loss == nil || errors.Is(o.loss, recipes.ErrMaxHold), o
	}
	beganAt := time.Now()
	endWatch := session.WatchWork(ctx, func() *session.Entry { return term }, s.onOverrun)
	err := s.candidate.Call(
		func() error {
			err := s.takeLeadership(ctx, recipe.NewLease(term))
			if zkutil.IsEndOf(ctx, err) { // here, because the methods of err are code of the user
				return nil
			}
			return err
		},
		func(value any, stack []byte) error { return &recipes.PanicError{Value: value, Stack: stack} })
	endWatch()
	o.ledFor = time.Since(beganAt)
	if err == nil {
		_ = term.Leave() // the term's context reported a loss to the function
	} else {
		_ = term.Fail() // as above
		o.err = s.base.OpError("lead", err)
	}
	o.loss = term.Loss()
	return true, o
}

// onOverrun is called while the function still runs after the end of the term; the log has the overrun already.
func (s *LeaderSelector) onOverrun(err error) { s.postToHandler(s.base.OpError("lead", err)) }

// planNext decides whether another attempt follows, and after which pause. planNext returns the number of the
// finished attempt.
func (s *LeaderSelector) planNext(ctx context.Context, o *outcome, pace *zkutil.Pace) (pause time.Duration, attempt int, isFollowed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++
	s.isQueued = s.requeuesAlways && !o.isFinal && ctx.Err() == nil
	pause, isAllowed := pace.AfterTerm(o.ledFor, o.err != nil && s.isQueued, o.loss)
	s.isQueued = s.isQueued && isAllowed
	if !s.isQueued {
		s.lastFailure = s.failureOf(o)
		pace.Reset()
	}
	s.changes.AnnounceLocked()
	return pause, s.attempts, s.isQueued
}

// failureOf returns the error for Run to return if no attempt follows.
func (s *LeaderSelector) failureOf(o *outcome) error {
	switch {
	case o.loss == nil:
		return o.err
	case o.err == nil:
		return s.base.OpError("lead", o.loss)
	default:
		return s.base.OpError("lead", zkutil.LossAndError(o.loss, errors.Unwrap(o.err)))
	}
}

// onRefused is called when the server refuses the selector, which then tries again.
func (s *LeaderSelector) onRefused(err error) {
	err = s.base.OpError("join", err)
	s.postToHandler(err)
	s.logUnhandled(err)
}

// postToHandler schedules a call of the user's handler, if err and the handler are set. An error for which the
// handler has no room, because a call does not return, is logged.
func (s *LeaderSelector) postToHandler(err error) {
	if err == nil || s.config.errorHandler == nil {
		return
	}
	if s.handlerCalls.TryPost(func() { s.config.errorHandler(err) }) {
		s.base.Queue.Session.NoteLeftOut("error handler")
		s.logFailure(err)
	}
}

// logUnhandled writes err, if not nil, to the log, unless the user has set a handler.
func (s *LeaderSelector) logUnhandled(err error) {
	if err != nil && s.config.errorHandler == nil {
		s.logFailure(err)
	}
}

func (s *LeaderSelector) logFailure(err error) {
	s.base.Queue.Session.Log(slog.LevelError, "leader selector failed", recipe.LogAttributes(s.base.Path, err)...)
}

// endRunAfter makes Run return if no attempt follows the attempt with this number, unless the selector was stopped. Run then
// returns ErrClosed after Close, and the error of its context if that ended, which ends ctx. If the attempt was not the last of a
// Run, endRunAfter logs the error, because Run does not return the error. endRunAfter runs after the error handler, which may ask
// for another attempt.
func (s *LeaderSelector) endRunAfter(ctx context.Context, attempt int, err error) {
	s.mu.Lock()
	isLast := s.isInRun && !s.isQueued && s.attempts == attempt
	if isLast {
		s.isRunOver, s.errForRun = ctx.Err() == nil && s.candidate.CheckRunning() == nil, err
		s.changes.AnnounceLocked()
	}
	s.mu.Unlock()
	if !isLast {
		s.logUnhandled(err)
	}
}

// awaitCondition blocks until condition, which is called under the lock, holds or ctx ends.
func (s *LeaderSelector) awaitCondition(ctx context.Context, condition func() bool) error {
	for {
		s.mu.Lock()
		isMet, changed := condition(), s.changes.ChangedLocked()
		s.mu.Unlock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if isMet {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
