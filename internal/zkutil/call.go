package zkutil

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// request is one call into zk.Conn.
type request[T any] struct {
	run     func(conn *zk.Conn) (T, error)
	write   bool // a committed answer proves the session
	cleanup bool // allowed while the session closes
	// undo, if set, is given the outcome of a call that ctx abandoned, once it is
	// known. It runs as a task of the session.
	undo func(ctx context.Context, result T, err error)
}

type outcome[T any] struct {
	result T
	err    error
}

// ticket is a call that has passed the gate; exactly one launch must follow.
type ticket struct {
	conn *zk.Conn
	id   int64 // the session at that moment
	line *line // the connection at that moment; nil if it is adopted
}

// do runs a request when the gate is open, for as long as ctx lasts.
func do[T any](ctx context.Context, s *Session, r request[T]) (T, error) {
	t, err := s.enter(ctx, r.cleanup)
	if err != nil {
		var zero T
		return zero, err
	}
	return launch(ctx, s, t, r)
}

// launch runs a request that has passed the gate.
func launch[T any](ctx context.Context, s *Session, t ticket, r request[T]) (T, error) {
	return start(s, t, r).wait(ctx)
}

// call is a request on its way.
type call[T any] struct {
	s      *Session
	r      request[T]
	answer chan outcome[T]
}

// start sends a request that has passed the gate, and does not wait for the answer.
func start[T any](s *Session, t ticket, r request[T]) call[T] {
	c := call[T]{s, r, make(chan outcome[T], 1)}
	sent := s.clock.now()
	go func() { // counted by enter; ends when zk.Conn answers or loses the connection
		result, err := r.run(t.conn)
		answered := err == nil || refused(err)
		if r.write && answered && t.conn.SessionID() == t.id {
			s.recordAnswer(sentWrite{sent, t.id, t.line}, err)
		}
		c.answer <- outcome[T]{result, err}
		s.leave(answered)
	}()
	return c
}

// wait waits for the answer for as long as ctx lasts. zk.Conn knows no context: a
// call abandoned by ctx goes on, and may still be executed.
func (c call[T]) wait(ctx context.Context) (T, error) {
	var closing <-chan struct{}
	if !c.r.cleanup {
		closing = c.s.done
	}
	var zero T
	var err error
	select {
	case o := <-c.answer:
		return o.result, o.err
	case <-ctx.Done():
		err = interrupted(ctx, nil)
	case <-closing:
		err = ErrClosed
	}
	if c.r.undo != nil {
		c.s.tidy(ctx, func(ctx context.Context) {
			select {
			case o := <-c.answer:
				c.r.undo(ctx, o.result, o.err)
			case <-ctx.Done(): // the session is closed, and its znodes with it
			}
		})
	}
	return zero, err
}

// enter waits at the gate, which is open while the session is connected, and
// counts the call. It ends queueing across sessions: zk.Conn would keep what it
// can't send, and send it in whatever session comes next.
func (s *Session) enter(ctx context.Context, cleanup bool) (ticket, error) {
	var limit <-chan time.Time
	for {
		if ctx.Err() != nil {
			return ticket{}, interrupted(ctx, nil)
		}
		s.mu.Lock()
		if s.sealed || s.closed && !cleanup {
			s.mu.Unlock()
			return ticket{}, ErrClosed
		}
		if s.connected && s.conn != nil {
			s.calls.Add(1)
			s.attend(+1)
			t := ticket{conn: s.conn, id: s.id}
			if s.wire != nil {
				t.line = s.wire.line()
			}
			s.mu.Unlock()
			return t, nil
		}
		changed := s.changed
		s.mu.Unlock()
		if limit == nil && !cleanup {
			timer := time.NewTimer(s.cfg.OperationTimeout)
			defer timer.Stop()
			limit = timer.C
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-limit:
			return ticket{}, s.unavailable()
		}
	}
}

// leave ends what enter began. Answers come in order, so any one shows that the line
// moves, even if a heartbeat is still behind other requests.
func (s *Session) leave(answered bool) {
	s.mu.Lock()
	if answered {
		s.trust.answered = s.clock.now()
	}
	s.attend(-1)
	s.mu.Unlock()
	s.calls.Done()
}

// connectionError is the failure of a connection. A dial that took too long matches
// context.DeadlineExceeded, but that is not the context of whoever waits for the connection.
type connectionError struct{ error }

func (e connectionError) Unwrap() error {
	if isAny(e.error, context.Canceled, context.DeadlineExceeded) {
		return nil
	}
	return e.error
}

// unavailable says why a request has had no answer yet.
func (s *Session) unavailable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.connected:
		return errUnanswered
	case s.failure == nil:
		return errUnavailable
	}
	return fmt.Errorf("%w: %w", errUnavailable, connectionError{s.failure})
}
