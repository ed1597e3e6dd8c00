package selector

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// outcome is how an attempt has ended.
type outcome struct {
	led     time.Duration // how long the function has run
	err     error         // of the function, or of the attempt, as an OpError
	loss    error         // what has ended the term, if that was nobody's will
	isFinal bool          // no other attempt would succeed
}

// campaign stands for one term after the other, as long as they are wanted, until ctx
// ends.
func (s *LeaderSelector) campaign(ctx context.Context) {
	pace := s.cfg.backoff.Pace()
	for s.await(ctx, func() bool { return s.queued }) == nil {
		o := s.serveTerm(ctx)
		pause, attempt := s.planNext(ctx, o, pace)
		s.tell(o.err) // after planNext: Requeue inside the error handler has an effect
		s.order.Post(func() { s.conclude(attempt, o.err) })
		zkutil.Pause(ctx, pause)
	}
	<-s.order.Barrier()
}

// serveTerm waits for a term and serves it. A term that was lost before the function could
// begin is none.
func (s *LeaderSelector) serveTerm(ctx context.Context) *outcome {
	for {
		term, err := s.candidate.Stand(ctx)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return &outcome{} // it was stopped
		default:
			return &outcome{err: s.opError("stand", err), isFinal: true}
		}
		stop := context.AfterFunc(ctx, func() { _ = term.LeaveFor(context.Cause(ctx)) })
		served, o := s.serve(term) //nolint:contextcheck // a term has a context of its own
		stop()
		s.candidate.Vacate(term)
		if served {
			return &o
		}
	}
}

// serve has the function lead, and ends the term in the order that keeps a successor out:
// first the term's context, then the function, then the znode, which is up to the caller.
func (s *LeaderSelector) serve(term *zkutil.Entry) (served bool, o outcome) {
	s.mu.Lock()
	s.term = term
	s.mu.Unlock()
	ctx := term.Context()
	if !term.Stands() {
		return term.Loss() == nil, o
	}
	began, panicked := time.Now(), false
	err := s.candidate.Call(
		func() error { return s.take(ctx, recipes.NewLease(term)) },
		func(value any, stack []byte) error {
			panicked = true
			return &recipes.PanicError{Value: value, Stack: stack}
		})
	if !panicked && zkutil.IsEndOf(ctx, err) {
		err = nil
	}
	o.led = time.Since(began)
	_ = term.Leave() // a loss has been told to the function
	o.loss = term.Loss()
	if err != nil {
		o.err = s.opError("lead", err)
	}
	return true, o
}

func (s *LeaderSelector) opError(op string, err error) error {
	return &recipes.OpError{Op: "selector: " + op, Path: s.path, Err: err}
}

// planNext decides how it goes on after an attempt, and after which pause. It counts the
// attempts.
func (s *LeaderSelector) planNext(ctx context.Context, o *outcome, pace *zkutil.Pace) (pause time.Duration, attempt int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempt++
	s.queued = s.auto && !o.isFinal && ctx.Err() == nil
	pause, goesOn := pace.AfterTerm(o.led, o.err != nil && s.queued, o.loss)
	s.queued = s.queued && goesOn
	if !s.queued {
		s.failure = s.failureOf(o)
		pace.Reset()
	}
	s.announce()
	return pause, s.attempt
}

// failureOf is what Run returns if nothing follows on an attempt.
func (s *LeaderSelector) failureOf(o *outcome) error {
	switch {
	case o.loss == nil:
		return o.err
	case o.err == nil:
		return s.opError("lead", o.loss)
	default:
		return s.opError("lead", zkutil.LossAndError(o.loss, errors.Unwrap(o.err)))
	}
}

// onRefused is called when the server refuses the selector, which then goes on.
func (s *LeaderSelector) onRefused(err error) {
	err = s.opError("stand", err)
	s.tell(err)
	s.log(err)
}

// tell gives an error, if there is one, to the user's handler, if there is one.
func (s *LeaderSelector) tell(err error) {
	if err != nil && s.cfg.handle != nil {
		s.order.Post(func() { s.cfg.handle(err) })
	}
}

// log writes an error, if there is one, to the log, unless there is a handler.
func (s *LeaderSelector) log(err error) {
	if err != nil && s.cfg.handle == nil {
		s.queue.Session.Log(slog.LevelError, "leader selector failed", recipes.AttributesOf(s.path, err)...)
	}
}

// conclude ends Run after an attempt on which nothing follows; what Run does not return is
// logged. It comes after the error handler, which may have asked for another.
func (s *LeaderSelector) conclude(attempt int, err error) {
	s.mu.Lock()
	isLast := s.inRun && !s.queued && s.attempt == attempt
	if isLast {
		s.over, s.unlogged = true, err
		s.announce()
	}
	s.mu.Unlock()
	if !isLast {
		s.log(err)
	}
}

// announce wakes those who await a change. Called under the lock.
func (s *LeaderSelector) announce() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// await blocks until condition, which is called under the lock, holds or ctx ends.
func (s *LeaderSelector) await(ctx context.Context, condition func() bool) error {
	for {
		s.mu.Lock()
		met := condition()
		if !met && s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if met {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
