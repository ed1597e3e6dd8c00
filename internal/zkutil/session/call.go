package session

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// request is one call into zk.Conn.
//
// zk.Conn queues what it can't send, and sends it in the next session. It knows no context, and
// answers a request at the latest when the connection ends. So a request first waits at a gate until
// the session is connected, is then counted, and runs in a goroutine of its own, which its caller
// may abandon.
type request[T any] struct {
	run       func(conn *zk.Conn) (T, error)
	isWrite   bool // a committed answer proves the session
	isCleanUp bool // allowed while the session closes
	// undo, if set, is given the outcome of a call that its caller has abandoned, once the outcome is
	// known. It runs as a task of the session.
	undo func(ctx context.Context, result T, err error)
}

type outcome[T any] struct {
	result T
	err    error
}

// ticket is the right to one request, which has to follow: see enterGate.
type ticket struct {
	conn *zk.Conn
	id   int64      // the session at that moment
	line *wire.Line // the connection at that moment; nil if it is adopted
}

// runRequest waits until the session is connected, sends a request, and waits for the answer, for
// as long as ctx lasts.
func runRequest[T any](ctx context.Context, s *Session, r request[T]) (T, error) {
	t, err := s.enterGate(ctx, r.isCleanUp)
	if err != nil {
		var zero T
		return zero, err
	}
	return runAdmitted(ctx, s, t, r)
}

// runAdmitted is runRequest behind the gate.
func runAdmitted[T any](ctx context.Context, s *Session, t ticket, r request[T]) (T, error) {
	return startRequest(s, t, r).wait(ctx)
}

// call is a request that was sent.
type call[T any] struct {
	s      *Session
	r      request[T]
	answer chan outcome[T]
}

// startRequest sends a request that has passed the gate, and does not wait for the answer.
func startRequest[T any](s *Session, t ticket, r request[T]) call[T] {
	c := call[T]{s, r, make(chan outcome[T], 1)}
	sentAt := s.clock.now()
	go func() { // counted by enterGate; ends when zk.Conn answers or loses the connection; joined in Close
		result, err := r.run(t.conn)
		isAnswered := err == nil || zkutil.IsRefused(err)
		if r.isWrite && isAnswered && t.conn.SessionID() == t.id {
			s.recordAnswer(wire.SentWrite{At: sentAt, ID: t.id, Line: t.line}, err)
		}
		c.answer <- outcome[T]{result, err}
		s.endCall(isAnswered)
	}()
	return c
}

// wait waits for the answer for as long as ctx lasts. A request that ctx has abandoned goes on, and
// may still be executed.
func (c call[T]) wait(ctx context.Context) (T, error) {
	var closing <-chan struct{}
	if !c.r.isCleanUp {
		closing = c.s.life.open.Done()
	}
	var zero T
	var err error
	select {
	case o := <-c.answer:
		return o.result, o.err
	case <-ctx.Done():
		err = zkutil.Interrupted(ctx, nil)
	case <-closing:
		err = zkutil.ErrClosed
	}
	if c.r.undo != nil {
		c.s.cleanUp(ctx, func(ctx context.Context) {
			select {
			case o := <-c.answer:
				c.r.undo(ctx, o.result, o.err)
			case <-ctx.Done(): // the session is closed, and its znodes with it
			}
		})
	}
	return zero, err
}

// enterGate waits until the session is connected, for an operation timeout at most, and counts the
// request. A request that cleans up waits for as long as it takes.
func (s *Session) enterGate(ctx context.Context, isCleanUp bool) (ticket, error) {
	var limit <-chan time.Time
	for {
		if ctx.Err() != nil {
			return ticket{}, zkutil.Interrupted(ctx, nil)
		}
		s.mu.Lock()
		if s.life.isSealedLocked() || s.life.isClosingLocked() && !isCleanUp {
			s.mu.Unlock()
			return ticket{}, zkutil.ErrClosed
		}
		if s.link.isConnected && s.conn != nil {
			s.life.calls.Add(1)
			s.retainLocked()
			t := ticket{conn: s.conn, id: s.link.id}
			if s.wire != nil {
				t.line = s.wire.Line()
			}
			s.mu.Unlock()
			return t, nil
		}
		changed := s.changes.ChangedLocked()
		s.mu.Unlock()
		if limit == nil && !isCleanUp {
			timer := time.NewTimer(s.cfg.OperationTimeout)
			defer timer.Stop()
			limit = timer.C
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-limit:
			return ticket{}, s.whyUnavailable()
		}
	}
}

// endCall ends what enterGate began. Any answer shows that the server answers, even if a heartbeat
// is still behind other requests, because answers come in order.
func (s *Session) endCall(isAnswered bool) {
	s.mu.Lock()
	if isAnswered {
		s.live.trust.answeredAt = s.clock.now()
	}
	s.releaseLocked()
	s.mu.Unlock()
	s.life.calls.Done()
}

// connectionError is the failure of a connection. It does not match the errors of contexts, because
// the context of a dial that took too long is not that of the caller who waits for the connection.
type connectionError struct{ error }

func (e connectionError) Unwrap() error {
	if zkutil.IsAny(e.error, context.Canceled, context.DeadlineExceeded) {
		return nil
	}
	return e.error
}

// whyUnavailable is why a request has had no answer yet.
func (s *Session) whyUnavailable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.link.isConnected:
		return errUnanswered
	case s.link.failure == nil:
		return zkutil.ErrUnavailable
	}
	return fmt.Errorf("%w: %w", zkutil.ErrUnavailable, connectionError{s.link.failure})
}

// Repeat calls step until it succeeds or fails for good, within the bounds of the retry policy and
// of ctx.
func Repeat[T any](ctx context.Context, s *Session, step func() (T, error)) (T, error) {
	return zkutil.RepeatWhile(ctx, s.cfg.Retry, s.mayRepeat(ctx), step)
}

// mayRepeat returns a function that reports whether to repeat one step after a failure.
//
// Transient failures are repeated. A refusal with an unknown code is repeated for one operation
// timeout only, because a caller whose context has no end would otherwise never see the refusal. For a
// candidate it is not repeated here, because a candidate reports it and repeats it itself.
func (s *Session) mayRepeat(ctx context.Context) func(error) bool {
	var firstAt time.Time // of the refusals with an unknown code
	return func(err error) bool {
		switch _, isCandidate := ctx.Value(leftoversKey{}).(*Leftovers); {
		case !zkutil.IsUnknownAnswer(err):
			return zkutil.IsTransient(err)
		case isCandidate:
			return false
		}
		if firstAt.IsZero() {
			firstAt = time.Now()
		}
		return time.Since(firstAt) < s.cfg.OperationTimeout
	}
}
