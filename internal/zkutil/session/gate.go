package session

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/leftovers"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/ops"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// gate admits requests while the session is connected, and counts the requests in flight.
type gate struct {
	s        *Session
	optional *ops.Optional
	suspects *ops.Suspects
	entry    entrance // of a session that was opened without a server

	testMu sync.Mutex // protects the field below; Session.mu may be locked inside
	test   *call      // the latest of testLine; nil: none yet
}

// call is a request and the answer.
//
// A request first waits at a gate until the session is connected, and is then counted. The caller may abandon a
// request, which then continues, and may still be executed.
type call struct {
	wire.Request

	isCleanUp   bool                // allowed while the session closes: see Finishing
	reservation *budget.Reservation // marked as sent once the request has its position in the order; may be nil
	taker       taker               // may be nil

	// undo, if set, gets the outcome of an abandoned call once the outcome is known. undo runs as a task of the
	// session.
	undo        func(ctx context.Context, a wire.Answer)
	isAbandoned bool // undo will run, or the session is over

	support support
	flight  flight
}

// taker is the part of the session for which a request is sent: a watch that the request sets, the removal of a znode, or a proof.
type taker interface {
	// takeLocked gets the answer before the caller does.
	takeLocked(c *call, a wire.Answer)
}

// support is what is known of the servers' support of a request's operation.
type support struct {
	before      ops.Knowledge // of an optional operation: what was known of the server asked when the request was sent
	testedEpoch uint64        // of a connection that answered another request shortly before; 0: none was asked
	isEnd       bool          // the connection ended at the request: see ops.IsEndAt; set before done is closed
}

// flight is a request from the gate to its answer.
type flight struct {
	s        *Session // nil: the request was not sent
	ticket   ticket
	answer   wire.Answer
	done     chan struct{}    // closed when the answer is set
	together [2]*wire.Request // room for the requests sent together, of which this call is the first
}

// ticket is the right to send requests, which the caller has to send. See gate.enter.
type ticket struct {
	conn    *zk.Conn
	id      int64      // the session at that moment
	epoch   uint64     // counts the handshakes
	line    *wire.Line // the connection at that moment
	server  string     // of that connection
	isBound bool       // the server resumes no session
}

// run sends a request, and waits for the answer.
func (g *gate) run(ctx context.Context, c *call) (wire.Answer, error) {
	c.isCleanUp = isFinishing(ctx)
	if err := g.send(ctx, c); err != nil {
		return wire.Answer{}, err
	}
	return c.wait(ctx)
}

// Request sends a request, and waits for the answer. It is not repeated. See Repeat.
func (s *Session) Request(ctx context.Context, r wire.Request) (wire.Answer, error) {
	return s.gate.run(ctx, &call{Request: r})
}

// RequestOn is Request over the connection of an epoch. If that connection is lost, nothing is sent, and the error is ErrStale: what the caller
// read on it may be out of date.
func (s *Session) RequestOn(ctx context.Context, epoch uint64, r wire.Request) (wire.Answer, error) {
	c := &call{Request: r, isCleanUp: isFinishing(ctx)}
	t, err := s.gate.admit(ctx, c)
	if err != nil {
		return wire.Answer{}, err
	}
	if t.epoch != epoch {
		s.gate.giveBack()
		return wire.Answer{}, zkutil.ErrStale
	}
	s.gate.sendAdmitted(t, c)
	return c.wait(ctx)
}

// send waits at the gate, within the bounds of enter, and then sends requests together.
func (g *gate) send(ctx context.Context, calls ...*call) error {
	t, err := g.admit(ctx, calls...)
	if err != nil {
		return err
	}
	g.sendAdmitted(t, calls...)
	return nil
}

// sendAdmitted is send behind the gate.
func (g *gate) sendAdmitted(t ticket, calls ...*call) {
	s := g.s
	requests := calls[0].flight.together[:0]
	for _, c := range calls {
		c.flight.s, c.flight.ticket, c.flight.done = s, t, make(chan struct{})
		c.To = c
		if ops.IsOptional(c.Op) {
			if c.support.before = g.optional.OfServer(t.server, c.Op); c.support.before.IsLacking || t.isBound {
				c.avoidOptional() // the request may be older than this connection
			}
		}
		requests = append(requests, &c.Request)
	}
	t.line.Send(requests...) // together, and executed in order
	for _, c := range calls {
		if c.reservation != nil {
			c.reservation.MarkSent()
		}
	}
}

// Receive takes the answer. See wire.Receiver.
func (c *call) Receive(a wire.Answer) {
	s, ticket := c.flight.s, c.flight.ticket
	isSent := !a.SentAt.IsZero()
	isAnswered := a.Err == nil || isSent && zkutil.IsRefused(a.Err)
	if a.Err = c.judge(a); a.Err != nil {
		a.Err = c.explain(a)
	}
	s.mu.Lock()
	if isAnswered && core.IsProof(c.Op) {
		s.silence.End()
		err := a.Err
		if a.IsUncommitted {
			err = errUncommitted
			s.report.warnUncommittedLocked(ticket.server)
		}
		s.keeper.recordAnswerLocked(wire.SentWrite{At: a.SentAt, ID: ticket.id, Line: ticket.line}, err)
	}
	if isAnswered {
		s.core.OnAnswer(s.clock.Now())
	}
	if c.taker != nil {
		c.taker.takeLocked(c, a)
	}
	s.keeper.releaseLocked()
	s.mu.Unlock()
	c.flight.answer = a
	close(c.flight.done)
	s.life.calls.Done()
}

// explain returns the error of an answer for the caller. If permission is denied, the error names the action, and the znode whose ACL
// decides.
func (c *call) explain(a wire.Answer) error {
	err := a.Err
	switch c.Op {
	case proto.OpCreate, proto.OpCreate2, proto.OpCreateContainer:
		return zkutil.Denied(err, "create children of", zkutil.ParentOf(c.Path))
	case proto.OpDelete:
		return zkutil.Denied(err, "delete children of", zkutil.ParentOf(c.Path))
	case proto.OpGetChildren2:
		return zkutil.Denied(err, "list the children of", c.Path)
	case proto.OpSetData:
		return zkutil.Denied(err, "write", c.Path)
	case proto.OpMulti:
		creates := a.Refused - len(c.Checks)
		switch removes := creates - len(c.Creates); {
		case creates >= 0 && removes < 0:
			return zkutil.Denied(err, "create children of", zkutil.ParentOf(c.Creates[creates].Path))
		case removes >= 0 && removes < len(c.Removes):
			return zkutil.Denied(err, "delete children of", zkutil.ParentOf(c.Removes[removes]))
		default:
			return zkutil.Denied(err, "write", cmp.Or(c.Path, strings.Join(c.Checks, ", ")))
		}
	default:
		return zkutil.Denied(err, "read", c.Path)
	}
}

// wait waits for the answer for as long as ctx lasts. An answer already here counts, even if ctx is over
// since.
func (c *call) wait(ctx context.Context) (wire.Answer, error) {
	if zkutil.IsClosed(c.flight.done) {
		return c.flight.answer, c.flight.answer.Err
	}
	var closing <-chan struct{}
	if !c.isCleanUp {
		closing = c.flight.s.life.open.Done()
	}
	var err error
	select {
	case <-c.flight.done:
		return c.flight.answer, c.flight.answer.Err
	case <-ctx.Done():
		err = zkutil.Interrupted(ctx, nil)
	case <-closing:
		err = zkutil.ErrClosed
	}
	if c.undo != nil {
		c.isAbandoned = true
		c.flight.s.CleanUp(ctx, func(ctx context.Context) {
			select {
			case <-c.flight.done:
				c.undo(ctx, c.flight.answer)
			case <-ctx.Done(): // the session is closed, and its znodes with it
			}
		})
	}
	return wire.Answer{}, err
}

// judge returns the error of an answer, which matches ErrUnsupported if the servers seem not to know the operation.
func (c *call) judge(a wire.Answer) error {
	s, t := c.flight.s, c.flight.ticket
	now := s.clock.Now()
	o := ops.Outcome{Err: a.Err, At: now, Epoch: t.epoch, IsTested: c.support.testedEpoch == t.epoch, Session: t.id}
	if c.support.isEnd = ops.IsEndAt(a.Err, now.Sub(a.SentAt)) && !a.IsBehind; c.support.isEnd {
		o.IsEnd, o.Within, o.IsBound = true, s.Timeout(), s.wire.IsBound()
	}
	return s.gate.suspects.Judge(c.Op, o)
}

// admit waits at the gate for requests to be sent together, within the bounds of enter. If connections ended at such requests before,
// admit first tests the connection.
func (g *gate) admit(ctx context.Context, calls ...*call) (ticket, error) {
	hasSuspect := false
	for _, c := range calls {
		isSuspect, err := g.suspects.Check(c.Op)
		if err != nil {
			return ticket{}, err
		}
		hasSuspect = hasSuspect || isSuspect
	}
	if hasSuspect {
		epoch, err := g.testLine(ctx, calls)
		if err != nil {
			return ticket{}, err
		}
		for _, c := range calls {
			c.support.testedEpoch = epoch
		}
	}
	return g.enter(ctx, len(calls), calls[0].isCleanUp, false)
}

// testLine asks for something harmless on the connection, because a connection that answers nothing says nothing about a request. It
// returns the epoch of the connection that answered.
func (g *gate) testLine(ctx context.Context, calls []*call) (epoch uint64, err error) {
	t, err := g.enter(ctx, 1, calls[0].isCleanUp, false)
	if err != nil {
		return 0, err
	}
	if _, err := g.shareTest(t, calls[0].isCleanUp).wait(ctx); !ops.IsAnswered(err) {
		return 0, err
	}
	return t.epoch, nil
}

// shareTest returns a test of the connection of a ticket. All who ask at the same time share one: after a reconnect, there may be
// hundreds of deletions to repeat.
func (g *gate) shareTest(t ticket, isCleanUp bool) *call {
	g.testMu.Lock()
	defer g.testMu.Unlock()
	if c := g.test; c != nil && c.flight.ticket.epoch == t.epoch && c.isCleanUp == isCleanUp && !zkutil.IsClosed(c.flight.done) {
		g.giveBack()
		return c
	}
	g.test = &call{Request: wire.Request{Op: g.suspects.TestOp(), Path: root}, isCleanUp: isCleanUp}
	g.sendAdmitted(t, g.test)
	return g.test
}

// enter waits until the session is connected and its credentials are accepted, for an operation timeout at most, and counts n requests.
// Requests that clean up wait without limit. A request that presents a credential needs the connection alone.
func (g *gate) enter(ctx context.Context, n int, isCleanUp, isLogin bool) (ticket, error) {
	s := g.s
	var limit <-chan time.Time
	for {
		if ctx.Err() != nil {
			return ticket{}, zkutil.Interrupted(ctx, nil)
		}
		s.mu.Lock()
		if s.core.Phase >= core.Sealed || s.life.isConnEnded || s.core.Phase >= core.Closing && !isCleanUp {
			s.mu.Unlock()
			return ticket{}, zkutil.ErrClosed
		}
		if s.core.IsConnected && s.link.conn != nil && (!g.entry.isDue || isLogin) {
			t := g.admitLocked(n)
			s.mu.Unlock()
			return t, nil
		}
		changed := s.link.changes.ChangedLocked()
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
			return ticket{}, s.WhyUnavailable()
		}
	}
}

// giveBack ends one request of a ticket, which was not sent over the wire.
func (g *gate) giveBack() {
	g.s.Release()
	g.s.life.calls.Done()
}

// admitLocked counts n requests over the present connection. The caller has to send them.
func (g *gate) admitLocked(n int) ticket {
	s := g.s
	s.life.calls.Add(n)
	for range n {
		s.keeper.retainLocked()
	}
	return ticket{conn: s.link.conn, id: s.core.ID, epoch: s.core.Epoch, line: s.wire.Line(), server: s.report.server, isBound: s.core.IsBound()}
}

// connectionError is the failure of a connection. A connectionError does not match the errors of contexts,
// because the context of a dial that took too long is not the context of the caller who waits for the
// connection.
type connectionError struct{ error }

func (e connectionError) Unwrap() error {
	if zkutil.IsAny(e.error, context.Canceled, context.DeadlineExceeded) {
		return nil
	}
	return e.error
}

// errUncommitted means that a server answered a write, and that no quorum committed the write.
var errUncommitted = errors.New("the server commits nothing")

// errUnanswered means that the client is connected, but the server is silent.
var errUnanswered = errors.New("the server does not answer")

// Repeat calls step until success or a permanent failure, within the bounds of the retry policy and of ctx,
// while the session is open.
func Repeat[T any](ctx context.Context, s *Session, step func() (T, error)) (T, error) {
	result, err := step()
	if err == nil {
		return result, nil // nearly always
	}
	ctx, cancel := s.WhileOpen(ctx)
	defer cancel()
	mayRepeat := s.gate.mayRepeat(ctx)
	onRetry, _ := ctx.Value(onRetryKey{}).(func())
	return zkutil.RepeatAfter(ctx, s.cfg.Retry, func(err error) bool {
		if !mayRepeat(err) {
			return false
		}
		if onRetry != nil {
			onRetry()
		}
		return true
	}, err, step)
}

// onRetryKey is the key of the function of OnRetry in a context.
type onRetryKey struct{}

// OnRetry derives a context in which Repeat calls onRetry after each failure that it repeats, in the goroutine of the caller. In an
// outage, that is once an operation timeout or more often.
func OnRetry(ctx context.Context, onRetry func()) context.Context {
	return context.WithValue(ctx, onRetryKey{}, onRetry)
}

// mayRepeat returns a function that reports whether to repeat one step after a failure.
//
// Transient failures are repeated. A refusal with an unknown code is repeated for one operation timeout only,
// because a caller whose context has no end would otherwise never see the refusal. For a candidate such a
// refusal is not repeated here, because a candidate reports and repeats the refusal itself.
func (g *gate) mayRepeat(ctx context.Context) func(error) bool {
	s := g.s
	var firstAt time.Time // of refusals with an unknown code
	return func(err error) bool {
		switch isCandidate := leftovers.Of(ctx) != nil; {
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

// anyVersion of a znode's data.
const anyVersion = -1

// listCall returns a request for the children of a directory.
func listCall(dir string) *call {
	return &call{Request: wire.Request{Op: proto.OpGetChildren2, Path: dir}}
}

// readCall returns a read of a znode.
func readCall(path string) *call {
	return &call{Request: wire.Request{Op: proto.OpGetData, Path: path}}
}

// deleteCall returns a delete of a znode.
func deleteCall(path string, version int32) *call {
	return &call{Request: wire.Request{Op: proto.OpDelete, Path: path, Version: version}}
}

// addAuth presents a credential, which zk.Conn presents again on each later connection.
func (g *gate) addAuth(ctx context.Context, auth Auth) error {
	s := g.s
	t, err := g.enter(ctx, 1, false, true)
	if err != nil {
		return err
	}
	answer := make(chan error, 1)
	go func() { // counted by gate.enter; ends when zk.Conn answers or loses the connection; joined in Close
		answer <- t.conn.AddAuth(auth.Scheme, auth.Credential)
		g.giveBack()
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return zkutil.Interrupted(ctx, nil)
	case <-s.life.open.Done():
		return zkutil.ErrClosed
	}
}

// askOptional sends a request for an operation that the servers may lack, or, if they do, a request for the operation that stands in for
// it. create returns the former, and send sends either and waits for the answer. The outcome is noted for the server that was asked: a
// request waits at the gate, and may go to another server than the latest when it was made. See sendAdmitted.
func (g *gate) askOptional(op int32, create func() *call, send func(c *call) (wire.Answer, error)) (wire.Answer, error) {
	sendOther := func() (wire.Answer, error) {
		c := create()
		c.avoidOptional()
		return send(c)
	}
	if g.optional.Of(op).IsLacking {
		return sendOther()
	}
	c := create()
	a, err := send(c)
	if c.flight.s == nil || c.Op != op { // not sent, or not as this operation
		return a, err
	}
	switch g.optional.NoteOutcome(op, c.support.before, err); {
	case zkutil.IsUnimplemented(err):
		return sendOther()
	case errors.Is(err, zk.ErrBadArguments):
		if a, err = sendOther(); ops.IsAnswered(err) && !errors.Is(err, zk.ErrBadArguments) { // otherwise the arguments are bad
			g.optional.NoteLacking(op, c.support.before)
		}
	}
	return a, err
}

// avoidOptional makes an unsent request one for the operation that stands in for an optional one.
func (c *call) avoidOptional() {
	if c.Op == proto.OpCreateContainer {
		c.Flags = zk.FlagPersistent
	}
	c.Op = ops.StandIn(c.Op)
}

// readNode reads a znode without a watch.
func (g *gate) readNode(ctx context.Context, path string) (Node, error) {
	a, err := g.run(ctx, readCall(path))
	return Node{a.Data, a.Stat}, err
}

func (g *gate) readStat(ctx context.Context, path string) (Node, error) {
	a, err := g.run(ctx, &call{Request: wire.Request{Op: proto.OpExists, Path: path}})
	if isUnreadable(err) {
		return Node{}, nil
	}
	return Node{Stat: a.Stat}, err
}
