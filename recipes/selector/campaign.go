package selector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// errRefused marks what a campaign gives up for: the server refuses for good.
var errRefused = errors.New("refused by the server")

// campaign stands for one term after the other, as long as they are wanted, until ctx
// ends.
func (s *LeaderSelector) campaign(ctx context.Context) {
	pace := s.backoff.Pace()
	for s.await(ctx, func() bool { return s.queued }) == nil {
		led, err := s.attempt(ctx)
		if err != nil {
			err = &recipes.OpError{Op: "selector: lead", Path: s.path, Err: err}
		}
		if led > s.backoff.MaxInterval {
			pace.Reset()
		}
		pause := s.settle(err, pace)
		s.report(err) // who is told finds it settled
		rest(ctx, pause)
	}
	<-s.order.Barrier()
}

func rest(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// attempt serves one term, and returns how long the function has led. A term that was
// lost before the function could begin is none.
func (s *LeaderSelector) attempt(ctx context.Context) (led time.Duration, err error) {
	for {
		term, err := s.candidate.Stand(ctx)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return 0, nil //nolint:nilerr // it was stopped
		default:
			return 0, fmt.Errorf("%w: %w", errRefused, err)
		}
		stop, began := context.AfterFunc(ctx, func() { _ = term.Leave() }), time.Now()
		served, err := s.serve(term) //nolint:contextcheck // a term has a context of its own
		stop()
		s.candidate.Vacate(term)
		if served {
			return time.Since(began), err
		}
	}
}

// serve has the function lead, and ends the term in the order that keeps a successor out:
// first the term's context, then the function, then the znode, which is up to the caller.
func (s *LeaderSelector) serve(term *zkutil.Entry) (served bool, err error) {
	s.mu.Lock()
	s.term = term
	s.mu.Unlock()
	ctx := term.Context()
	if !term.Stands() {
		return errors.Is(context.Cause(ctx), recipes.ErrReleased), nil
	}
	err = zkutil.Call(func() error { return s.take(ctx, recipes.NewLease(term)) })
	over := ctx.Err() != nil
	_ = term.Leave() // a loss has been told to the function
	if over && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		err = nil
	}
	return true, err
}

// settle decides how it goes on after an attempt, and after which pause.
func (s *LeaderSelector) settle(err error, pace *zkutil.Pace) (pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued = s.auto
	switch {
	case errors.Is(err, errRefused):
		s.queued, s.failure = false, err
	case err != nil && s.auto:
		var goesOn bool
		if pause, goesOn = pace.Next(); !goesOn {
			s.queued, s.failure = false, err
		}
	}
	if err == nil || !s.queued {
		pace.Reset()
	}
	s.announce()
	return pause
}

// report tells the owner of an error, if it is one.
func (s *LeaderSelector) report(err error) {
	switch {
	case err == nil:
	case s.handle == nil:
		s.queue.Session.Log(slog.LevelError, "leadership failed", "path", s.path, "err", err)
	default:
		s.order.Post(func() { s.handle(err) })
	}
}

// announce wakes those who await a change. Called under the lock.
func (s *LeaderSelector) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// await blocks until condition, which is called under the lock, holds or ctx ends.
func (s *LeaderSelector) await(ctx context.Context, condition func() bool) error {
	for {
		s.mu.Lock()
		met, changed := condition(), s.changed
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
