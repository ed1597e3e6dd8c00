package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// carrier carries requests to the server: the line of an own connection, or an adopted zk.Conn. Requests
// that are sent together are executed in their order.
type carrier interface {
	Send(requests ...*wire.Request)
}

// call is one request, and its answer.
//
// A request first waits at a gate until the session is connected, and is then counted. Its caller may
// abandon it: then it goes on, and may still be executed.
type call struct {
	wire.Request

	what, where string // what is not permitted, and at which znode, if the server refuses for lack of it
	isCleanUp   bool   // allowed while the session closes
	watch       *Watch // that the request sets
	// undo, if set, is given the outcome of a call that its caller has abandoned, once the outcome is
	// known. It runs as a task of the session.
	undo        func(ctx context.Context, a wire.Answer)
	isAbandoned bool   // undo will run, or the session is over
	place       *Place // that is told once the request is in its order; may be nil

	removal *removal // that the delete is for

	s        *Session
	ticket   ticket
	answer   wire.Answer
	done     chan struct{}    // closed when answer has come
	together [2]*wire.Request // room for the requests that are sent together, of which it is the first
}

// ticket is the right to send requests, which have to follow: see enterGate.
type ticket struct {
	carrier carrier
	conn    *zk.Conn
	id      int64      // the session at that moment
	epoch   uint64     // counts the handshakes
	line    *wire.Line // the connection at that moment; nil if it is adopted
}

// run sends a request, and waits for the answer.
func (s *Session) run(ctx context.Context, c *call) (wire.Answer, error) {
	if err := s.send(ctx, c); err != nil {
		return wire.Answer{}, err
	}
	return c.wait(ctx)
}

// send waits until the session is connected, for as long as ctx lasts, and sends requests together.
func (s *Session) send(ctx context.Context, calls ...*call) error {
	t, err := s.enterGate(ctx, len(calls), calls[0].isCleanUp)
	if err != nil {
		return err
	}
	s.sendAdmitted(t, calls...)
	return nil
}

// sendAdmitted is send behind the gate.
func (s *Session) sendAdmitted(t ticket, calls ...*call) {
	requests := calls[0].together[:0]
	for _, c := range calls {
		c.s, c.ticket, c.done = s, t, make(chan struct{})
		c.To = c
		requests = append(requests, &c.Request)
	}
	t.carrier.Send(requests...)
	for _, c := range calls {
		if c.place != nil && t.line != nil { // zk.Conn tells only by its answer
			c.place.noteSent()
		}
	}
}

// Receive takes the answer: see wire.Receiver.
func (c *call) Receive(a wire.Answer) {
	s := c.s
	isSent := !a.SentAt.IsZero()
	isAnswered := a.Err == nil || isSent && zkutil.IsRefused(a.Err)
	// zk.Conn sends what it could not send in the next session.
	isOfSession := c.ticket.line != nil || c.ticket.conn.SessionID() == c.ticket.id
	a.Err = zkutil.Denied(a.Err, c.what, c.where)
	if c.watch != nil {
		a.Err = c.watchError(a.Err)
	}
	s.mu.Lock()
	if isAnswered && isOfSession && wire.IsProof(c.Op) {
		s.recordAnswerLocked(wire.SentWrite{At: a.SentAt, ID: c.ticket.id, Line: c.ticket.line}, a.Err)
	}
	if isAnswered { // even if a heartbeat is still behind other requests, because answers come in order
		s.live.trust.answeredAt = s.clock.now()
	}
	if c.watch != nil {
		s.onWatchSetLocked(c, a)
	}
	if c.removal != nil {
		s.onRemovalAnsweredLocked(c.removal, a.Err)
	}
	s.releaseLocked()
	s.mu.Unlock()
	if c.place != nil && c.ticket.line == nil {
		c.place.noteSent()
	}
	c.answer = a
	close(c.done)
	s.life.calls.Done()
}

// wait waits for the answer for as long as ctx lasts. An answer that has come counts, even if ctx has ended since.
func (c *call) wait(ctx context.Context) (wire.Answer, error) {
	select {
	case <-c.done:
		return c.answer, c.answer.Err
	default:
	}
	var closing <-chan struct{}
	if !c.isCleanUp {
		closing = c.s.life.open.Done()
	}
	var err error
	select {
	case <-c.done:
		return c.answer, c.answer.Err
	case <-ctx.Done():
		err = zkutil.Interrupted(ctx, nil)
	case <-closing:
		err = zkutil.ErrClosed
	}
	if c.undo != nil {
		c.isAbandoned = true
		c.s.cleanUp(ctx, func(ctx context.Context) {
			select {
			case <-c.done:
				c.undo(ctx, c.answer)
			case <-ctx.Done(): // the session is closed, and its znodes with it
			}
		})
	}
	return wire.Answer{}, err
}

// enterGate waits until the session is connected, for an operation timeout at most, and counts n
// requests. Requests that clean up wait for as long as it takes.
func (s *Session) enterGate(ctx context.Context, n int, isCleanUp bool) (ticket, error) {
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
			t := s.admitLocked(n)
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

// returnTicket gives one request of a ticket back that is not sent.
func (s *Session) returnTicket() {
	s.mu.Lock()
	s.releaseLocked()
	s.mu.Unlock()
	s.life.calls.Done()
}

// admitLocked counts n requests over the present connection, which have to follow.
func (s *Session) admitLocked(n int) ticket {
	s.life.calls.Add(n)
	for range n {
		s.retainLocked()
	}
	t := ticket{conn: s.conn, id: s.link.id, epoch: s.link.epoch, carrier: adopted{s.conn, s.clock.now}}
	if s.wire != nil {
		t.line = s.wire.Line()
		t.carrier = t.line
	}
	return t
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

// errUnanswered means that the client is connected, but the server is silent.
var errUnanswered = errors.New("the server does not answer")

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
// of ctx, while the session is open.
func Repeat[T any](ctx context.Context, s *Session, step func() (T, error)) (T, error) {
	result, err := step()
	if err == nil {
		return result, nil // nearly always
	}
	return repeatAfter(ctx, s, err, step)
}

// repeatAfter is Repeat after a first step that has failed.
func repeatAfter[T any](ctx context.Context, s *Session, failure error, step func() (T, error)) (T, error) {
	ctx, cancel := s.WhileOpen(ctx)
	defer cancel()
	mayRepeat := s.mayRepeat(ctx)
	return zkutil.RepeatAfter(ctx, s.cfg.Retry, func(err error) bool {
		if !mayRepeat(err) {
			return false
		}
		s.leaveSlot(ctx)
		return true
	}, failure, step)
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
