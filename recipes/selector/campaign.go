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

// outcome is how an attempt has ended.
type outcome struct {
	ledFor  time.Duration // how long the function has run
	err     error         // of the function, or of the attempt, as an OpError
	loss    error         // the cause if the term was lost
	isFinal bool          // no other attempt would succeed
}

// runCampaign makes one attempt after the other, as long as they are wanted, until ctx ends.
func (s *LeaderSelector) runCampaign(ctx context.Context) {
	pace := s.newPace()
	for s.awaitQueued(ctx) {
		s.finishAttempt(ctx, s.makeAttempt(ctx), pace)
	}
	s.awaitHandlerCalls()
}

// awaitQueued blocks until an attempt is wanted. It returns false when ctx has ended.
func (s *LeaderSelector) awaitQueued(ctx context.Context) bool {
	return s.awaitCondition(ctx, func() bool { return s.isQueued }) == nil
}

func (s *LeaderSelector) awaitHandlerCalls() { <-s.handlerCalls.Barrier() }

func (s *LeaderSelector) newPace() *zkutil.Pace { return s.config.backoff.Pace() }

// finishAttempt reports an attempt that has ended, and pauses if another one follows.
func (s *LeaderSelector) finishAttempt(ctx context.Context, o *outcome, pace *zkutil.Pace) {
	pause, attempt := s.planNext(ctx, o, pace)
	s.postToHandler(o.err) // after planNext, so that Requeue inside the handler has an effect
	s.handlerCalls.Post(func() { s.endRunAfter(attempt, o.err) })
	zkutil.Pause(ctx, pause)
}

// makeAttempt waits for a term and serves it. If the term was lost before the function could begin,
// it waits for another one.
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

// failedAttempt returns the outcome of an attempt that has got no term.
func (s *LeaderSelector) failedAttempt(ctx context.Context, err error) *outcome {
	if ctx.Err() != nil {
		return &outcome{} // the selector was stopped
	}
	return &outcome{err: s.base.OpError("join", err), isFinal: true}
}

// serveAndVacate serves a term, and gives up its znode. It returns nil for a term that was not served.
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
		<-left // with the LeaseEnd of a trace: after Vacate, because a slow one must not hold up a successor
	}
	if !isServed {
		return nil
	}
	return &o
}

// serveTerm calls the function, and ends the term in the order that keeps a successor from leading
// beside it: first the term's context, then the function, then the znode, which is left to the
// caller. A term that was lost before the function could begin is not served.
func (s *LeaderSelector) serveTerm(term *session.Entry) (isServed bool, o outcome) {
	s.mu.Lock()
	s.term = term
	s.mu.Unlock()
	ctx := term.Context()
	if !term.Stands() {
		return term.Loss() == nil, o
	}
	beganAt, hasPanicked := time.Now(), false
	err := s.candidate.Call(
		func() error { return s.takeLeadership(ctx, recipe.NewLease(term)) },
		func(value any, stack []byte) error {
			hasPanicked = true
			return &recipes.PanicError{Value: value, Stack: stack}
		})
	if !hasPanicked && zkutil.IsEndOf(ctx, err) {
		err = nil
	}
	o.ledFor = time.Since(beganAt)
	_ = term.Leave() // its context has told the function of a loss
	o.loss = term.Loss()
	if err != nil {
		o.err = s.base.OpError("lead", err)
	}
	return true, o
}

// planNext decides whether another attempt follows, and after which pause. It returns the number of
// the attempt that has ended.
func (s *LeaderSelector) planNext(ctx context.Context, o *outcome, pace *zkutil.Pace) (pause time.Duration, attempt int) {
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
	return pause, s.attempts
}

// failureOf returns the error of Run if no attempt follows.
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

// onRefused is called when the server refuses the selector, which then goes on.
func (s *LeaderSelector) onRefused(err error) {
	err = s.base.OpError("join", err)
	s.postToHandler(err)
	s.logUnhandled(err)
}

// postToHandler has the user's handler called, if there are an error and a handler.
func (s *LeaderSelector) postToHandler(err error) {
	if err != nil && s.config.errorHandler != nil {
		s.handlerCalls.Post(func() { s.config.errorHandler(err) })
	}
}

// logUnhandled writes an error, if there is one, to the log, unless there is a handler.
func (s *LeaderSelector) logUnhandled(err error) {
	if err != nil && s.config.errorHandler == nil {
		s.base.Queue.Session.Log(slog.LevelError, "leader selector failed", recipe.LogAttributes(s.base.Path, err)...)
	}
}

// endRunAfter ends Run if no attempt follows on one with this number, unless Close has ended it already:
// then Run returns that. Otherwise endRunAfter logs the error of the attempt, because Run does not return it.
// It runs after the error handler, which may have asked for another attempt.
func (s *LeaderSelector) endRunAfter(attempt int, err error) {
	s.mu.Lock()
	isLast := s.isInRun && !s.isQueued && s.attempts == attempt
	if isLast {
		s.isRunOver, s.errForRun = s.candidate.CheckRunning() == nil, err
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
