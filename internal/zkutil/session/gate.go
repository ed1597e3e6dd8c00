package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// carrier carries requests to the server: the line of an own connection, or an adopted zk.Conn. Requests sent
// together are executed in order.
type carrier interface {
	Send(requests ...*wire.Request)
}

// gate admits requests while the session is connected, and counts the requests in flight.
type gate struct {
	s        *Session
	optional optionalOps
	hangUps  hangUps
	entry    entrance // of a session that was opened without a server; guarded by Session.mu
}

// call is a request and the answer.
//
// A request first waits at a gate until the session is connected, and is then counted. The caller may abandon a
// request, which then continues, and may still be executed.
type call struct {
	wire.Request

	what, where string // for the error if permission is denied: the action, and the znode
	isCleanUp   bool   // allowed while the session closes
	watch       *Watch // set by the request
	// undo, if set, gets the outcome of an abandoned call once the outcome is known. undo runs as a task of the
	// session.
	undo        func(ctx context.Context, a wire.Answer)
	isAbandoned bool                // undo will run, or the session is over
	reservation *budget.Reservation // marked as sent once the request has its place in the order; may be nil

	removal *removal      // for which the delete is sent
	proof   chan struct{} // that ends with the answer; nil: none

	before optionalOp // of an optional operation: what was known of the server asked when the request was sent

	s        *Session
	ticket   ticket
	answer   wire.Answer
	done     chan struct{}    // closed when answer has come
	together [2]*wire.Request // room for the requests sent together, of which this call is the first
}

// ticket is the right to send requests, which the caller has to send: see gate.enter.
type ticket struct {
	carrier carrier
	conn    *zk.Conn
	id      int64      // the session at that moment
	epoch   uint64     // counts the handshakes
	line    *wire.Line // the connection at that moment; nil if adopted
	server  string     // of the connection at that moment
	isBound bool       // the server resumes no session
}

// run sends a request, and waits for the answer.
func (g *gate) run(ctx context.Context, c *call) (wire.Answer, error) {
	if err := g.send(ctx, c); err != nil {
		return wire.Answer{}, err
	}
	return c.wait(ctx)
}

// send waits at the gate, within the bounds of enter, and then sends requests together.
func (g *gate) send(ctx context.Context, calls ...*call) error {
	for _, c := range calls {
		if err := g.hangUps.refuse(c.Op); err != nil {
			return err
		}
	}
	t, err := g.enter(ctx, len(calls), calls[0].isCleanUp)
	if err != nil {
		return err
	}
	g.sendAdmitted(t, calls...)
	return nil
}

// sendAdmitted is send behind the gate.
func (g *gate) sendAdmitted(t ticket, calls ...*call) {
	s := g.s
	requests := calls[0].together[:0]
	for _, c := range calls {
		c.s, c.ticket, c.done = s, t, make(chan struct{})
		c.To = c
		if slices.Contains(optional, c.Op) {
			if c.before = g.optional.ofServer(t.server, c.Op); c.before.isLacking || t.isBound {
				c.avoidOptional() // the request may have been made before this connection
			}
		}
		requests = append(requests, &c.Request)
	}
	t.carrier.Send(requests...)
	for _, c := range calls {
		if c.reservation != nil && t.line != nil { // otherwise only the answer shows whether zk.Conn has sent the request
			c.reservation.MarkSent()
		}
	}
}

// Receive takes the answer: see wire.Receiver.
func (c *call) Receive(a wire.Answer) {
	s := c.s
	isSent := !a.SentAt.IsZero()
	isAnswered := a.Err == nil || isSent && zkutil.IsRefused(a.Err)
	// zk.Conn sends unsent requests in the next session.
	isOfSession := c.ticket.line != nil || c.ticket.conn.SessionID() == c.ticket.id
	a.Err = s.gate.hangUps.judge(c, a, s.clock.Now())
	a.Err = zkutil.Denied(a.Err, c.what, c.where)
	if c.watch != nil {
		a.Err = c.watchError(a.Err)
	}
	s.mu.Lock()
	if isAnswered && isOfSession && wire.IsProof(c.Op) {
		s.silence.endLocked()
		s.keeper.recordAnswerLocked(wire.SentWrite{At: a.SentAt, ID: c.ticket.id, Line: c.ticket.line}, a.Err)
	}
	if isAnswered {
		s.ledger.OnAnswer(s.clock.Now())
	}
	if c.watch != nil {
		s.watches.onSetLocked(c, a)
	}
	if c.removal != nil {
		c.removal.onAnsweredLocked(a.Err)
	}
	s.proofs.endLocked(c.proof)
	s.keeper.releaseLocked()
	s.mu.Unlock()
	if c.reservation != nil && c.ticket.line == nil {
		c.reservation.MarkSent()
	}
	c.answer = a
	close(c.done)
	s.life.calls.Done()
}

// wait waits for the answer for as long as ctx lasts. An answer already here counts, even if ctx has ended
// since.
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

// enter waits until the session is connected, for an operation timeout at most, and counts n requests. Requests
// that clean up wait without limit.
func (g *gate) enter(ctx context.Context, n int, isCleanUp bool) (ticket, error) {
	s := g.s
	isLogin := len(s.cfg.Auth) > 0 && ctx.Value(loginKey{}) != nil // not under the lock, because ctx may be the user's
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
		if s.link.isConnected && s.link.conn != nil && g.entry.admitsLocked(isLogin) {
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
			return ticket{}, s.link.whyUnavailable()
		}
	}
}

// giveBack gives back one unsent request of a ticket.
func (g *gate) giveBack() {
	s := g.s
	s.mu.Lock()
	s.keeper.releaseLocked()
	s.mu.Unlock()
	s.life.calls.Done()
}

// admitLocked counts n requests over the present connection. The caller has to send them.
func (g *gate) admitLocked(n int) ticket {
	s := g.s
	s.life.calls.Add(n)
	for range n {
		s.keeper.retainLocked()
	}
	t := ticket{conn: s.link.conn, id: s.link.id, epoch: s.link.epoch, carrier: adopted{s.link.conn, s.clock.Now}, server: s.report.server, isBound: s.ledger.IsBound()}
	if s.wire != nil {
		t.line = s.wire.Line()
		t.carrier = t.line
	}
	return t
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

// errUnanswered means that the client is connected, but the server is silent.
var errUnanswered = errors.New("the server does not answer")

// Repeat calls step until success or a permanent failure, within the bounds of the retry policy and of ctx,
// while the session is open.
func Repeat[T any](ctx context.Context, s *Session, step func() (T, error)) (T, error) {
	result, err := step()
	if err == nil {
		return result, nil // nearly always
	}
	return repeatAfter(ctx, s, err, step)
}

// repeatAfter is Repeat after a failed first step.
func repeatAfter[T any](ctx context.Context, s *Session, failure error, step func() (T, error)) (T, error) {
	ctx, cancel := s.WhileOpen(ctx)
	defer cancel()
	mayRepeat := s.gate.mayRepeat(ctx)
	return zkutil.RepeatAfter(ctx, s.cfg.Retry, func(err error) bool {
		if !mayRepeat(err) {
			return false
		}
		s.shortTasks.leaveSlot(ctx)
		return true
	}, failure, step)
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

// anyVersion of a znode's data.
const anyVersion = -1

// listCall returns a request for the children of a directory.
func listCall(dir string) *call {
	return &call{Request: wire.Request{Op: proto.OpGetChildren2, Path: dir}, what: "list the children of", where: dir}
}

// readCall returns a read of a znode.
func readCall(path string) *call {
	return &call{Request: wire.Request{Op: proto.OpGetData, Path: path}, what: "read", where: path}
}

// deleteCall returns a delete of a znode.
func deleteCall(path string, version int32) *call {
	return &call{Request: wire.Request{Op: proto.OpDelete, Path: path, Version: version}, what: "delete children of", where: zkutil.ParentOf(path)}
}

// adopted carries requests over a zk.Conn whose frames are not seen. zk.Conn queues unsent requests, and sends
// them in the next session. zk.Conn supports no context, and answers a request at the latest when the
// connection ends. Without create2, the answer to a create has no Stat.
type adopted struct {
	conn *zk.Conn
	now  func() time.Time // the clock of trust
}

// Send runs the requests one after the other. After a request without an answer the others are not sent: they
// would go to another connection.
func (a adopted) Send(requests ...*wire.Request) {
	go func() { // counted by gate.enter; ends when zk.Conn answers or loses the connection; joined in Close
		answer := wire.Answer{Refused: -1}
		for _, r := range requests {
			if answer.Err == nil || zkutil.IsRefused(answer.Err) {
				sentAt := a.now()
				answer = a.ask(r)
				answer.SentAt = sentAt
			} else {
				answer = wire.Answer{Err: zk.ErrNoServer, Refused: -1}
			}
			r.To.Receive(answer)
		}
	}()
}

func (a adopted) ask(r *wire.Request) (answer wire.Answer) {
	answer.Refused = -1
	switch r.Op {
	case proto.OpCreate, proto.OpCreate2:
		answer.Path, answer.Err = a.conn.Create(r.Path, r.Data, r.Flags, r.ACL)
	case proto.OpCreateContainer:
		answer.Path, answer.Err = a.conn.CreateContainer(r.Path, r.Data, r.Flags, r.ACL)
	case proto.OpDelete:
		answer.Err = a.conn.Delete(r.Path, r.Version)
	case proto.OpSetData:
		var stat *zk.Stat
		if stat, answer.Err = a.conn.Set(r.Path, r.Data, r.Version); answer.Err == nil {
			answer.Stat = *stat
		}
	case proto.OpSync:
		answer.Path, answer.Err = a.conn.Sync(r.Path)
	case proto.OpMulti:
		a.check(r, &answer)
	default:
		a.read(r, &answer)
	}
	return answer
}

// read sends a read request, which may also set a watch.
func (a adopted) read(r *wire.Request, answer *wire.Answer) {
	var stat *zk.Stat
	isThere := true
	switch {
	case r.Op == proto.OpGetData && r.IsWatch:
		answer.Data, stat, answer.Events, answer.Err = a.conn.GetW(r.Path)
	case r.Op == proto.OpGetData:
		answer.Data, stat, answer.Err = a.conn.Get(r.Path)
	case r.Op == proto.OpExists && r.IsWatch:
		isThere, stat, answer.Events, answer.Err = a.conn.ExistsW(r.Path)
	case r.Op == proto.OpExists:
		isThere, stat, answer.Err = a.conn.Exists(r.Path)
	case r.IsWatch:
		answer.Children, stat, answer.Events, answer.Err = a.conn.ChildrenW(r.Path)
	default:
		answer.Children, stat, answer.Err = a.conn.Children(r.Path)
	}
	if answer.Err == nil && stat != nil {
		answer.Stat = *stat
	}
	if answer.Err == nil && !isThere {
		answer.Err = zk.ErrNoNode
	}
}

// check sends a transaction that checks whether znodes exist, and then writes r.Path, if set.
func (a adopted) check(r *wire.Request, answer *wire.Answer) {
	checks := make([]any, len(r.Checks))
	for i, path := range r.Checks {
		checks[i] = &zk.CheckVersionRequest{Path: path, Version: anyVersion}
	}
	if r.Path != "" {
		checks = append(checks, &zk.SetDataRequest{Path: r.Path, Data: r.Data, Version: r.Version})
	}
	parts, err := a.conn.Multi(checks...)
	answer.Err = err
	for i, part := range parts {
		if part.Error != nil && answer.Refused < 0 {
			answer.Refused = i
		}
	}
}

// addAuth presents a credential, which zk.Conn presents again on each later connection.
func (g *gate) addAuth(ctx context.Context, auth Auth) error {
	s := g.s
	t, err := g.enter(ctx, 1, false)
	if err != nil {
		return err
	}
	answer := make(chan error, 1)
	go func() { // counted by gate.enter; ends when zk.Conn answers or loses the connection; joined in Close
		answer <- t.conn.AddAuth(auth.Scheme, auth.Credential)
		s.mu.Lock()
		s.keeper.releaseLocked()
		s.mu.Unlock()
		s.life.calls.Done()
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

// Servers before 3.5 lack create2, removeWatches and createContainer. ZooKeeper answers a request for an operation that it does not
// know with Unimplemented, and ends the connection. Others answer BadArguments, or end the connection without a word. So
// the session uses another operation instead, and remembers for each server what the server lacks until the session is closed. A lost
// answer is an ordinary loss while the server is known to execute the operation, or to refuse it for another reason. Otherwise enoughLost
// lost answers in a row say that the server hangs up. If that is wrong, the other operation serves as well.
//
// A server that resumes no session is not asked for these operations at all, because a hang-up would cost the session: see
// wire.Wire.IsBound.

// enoughLost is how many lost answers in a row say that a server does not know an operation. enoughLostThoughKnown counts for an operation
// that the server has known before: another server may have the address now.
const (
	enoughLost            = 2
	enoughLostThoughKnown = 5
)

// maxServersKnown limits the servers of which something is remembered.
const maxServersKnown = 64

// optionalOps is the session's knowledge of the operations that servers may lack.
type optionalOps struct {
	mu      sync.Mutex // protects the fields below
	server  string     // of the latest connection
	isBound bool       // the server resumes no session
	known   map[serverOp]*optionalOp
}

// serverOp is an operation of a server.
type serverOp struct {
	server string
	op     int32
}

// optionalOp is what is known of one operation of a server.
type optionalOp struct {
	server    string
	isKnown   bool // the server has executed it, or refused it for another reason
	isLacking bool // the server is not asked for it any more
	lost      int  // answers in a row
}

func newOptionalOps() optionalOps { return optionalOps{known: map[serverOp]*optionalOp{}} }

// enter notes the server of a new connection.
func (o *optionalOps) enter(server string, isBound bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.server, o.isBound = server, isBound; len(o.known) >= maxServersKnown*len(optional) {
		clear(o.known)
	}
}

// optional are the operations that servers may lack.
var optional = []int32{proto.OpCreate2, proto.OpRemoveWatches, proto.OpCreateContainer} //nolint:gochecknoglobals // a constant list

// stateLocked returns what is known of an operation of a server, to be changed.
func (o *optionalOps) stateLocked(server string, op int32) *optionalOp {
	key := serverOp{server, op}
	if o.known[key] == nil {
		o.known[key] = &optionalOp{server: server}
	}
	return o.known[key]
}

// of returns what is known of an operation of the present server.
func (o *optionalOps) of(op int32) optionalOp {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isBound {
		return optionalOp{server: o.server, isLacking: true}
	}
	return *o.stateLocked(o.server, op)
}

// ofServer returns what is known of an operation of a server.
func (o *optionalOps) ofServer(server string, op int32) optionalOp {
	o.mu.Lock()
	defer o.mu.Unlock()
	return *o.stateLocked(server, op)
}

// noteKnown notes that a server knows an operation.
func (o *optionalOps) noteKnown(op int32, server string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	state := o.stateLocked(server, op)
	state.isKnown, state.lost = true, 0
}

// noteLacking notes that a server lacks an operation.
func (o *optionalOps) noteLacking(op int32, server string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stateLocked(server, op).isLacking = true
}

// noteUnimplemented notes that a server has said that it does not know an operation. It does not know later operations either,
// unless it was seen to.
func (o *optionalOps) noteUnimplemented(op int32, server string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, other := range optional {
		state := o.stateLocked(server, other)
		state.isLacking = state.isLacking || other == op || other > op && !state.isKnown
	}
}

// noteLost notes that the connection has ended before the answer. before is the knowledge when the request was
// sent: several losses of one connection count once.
func (o *optionalOps) noteLost(op int32, before optionalOp) {
	o.mu.Lock()
	defer o.mu.Unlock()
	state := o.stateLocked(before.server, op)
	if state.lost != before.lost {
		return
	}
	enough := enoughLost
	if state.isKnown {
		enough = enoughLostThoughKnown
	}
	state.lost++
	state.isLacking = state.isLacking || state.lost >= enough
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
	if g.optional.of(op).isLacking {
		return sendOther()
	}
	c := create()
	a, err := send(c)
	if c.s == nil || c.Op != op { // not sent, or not as this operation
		return a, err
	}
	switch g.optional.noteOutcome(op, c.before, err); {
	case zkutil.IsUnimplemented(err):
		return sendOther()
	case errors.Is(err, zk.ErrBadArguments):
		if a, err = sendOther(); isAnswered(err) && !errors.Is(err, zk.ErrBadArguments) { // otherwise the arguments are bad
			g.optional.noteLacking(op, c.before.server)
		}
	}
	return a, err
}

// avoidOptional makes an unsent request one for the operation that stands in for an optional one.
func (c *call) avoidOptional() {
	switch c.Op {
	case proto.OpCreate2:
		c.Op = proto.OpCreate
	case proto.OpCreateContainer:
		c.Op, c.Flags = proto.OpCreate, zk.FlagPersistent
	}
}

// noteOutcome notes what an answer says about an operation. before is the knowledge when the request was sent.
// BadArguments may refer to the operation or to the arguments.
func (o *optionalOps) noteOutcome(op int32, before optionalOp, err error) {
	switch {
	case zkutil.IsUnimplemented(err):
		o.noteUnimplemented(op, before.server)
	case errors.Is(err, zk.ErrBadArguments):
	case errors.Is(err, zk.ErrConnectionClosed):
		o.noteLost(op, before)
	case isAnswered(err):
		o.noteKnown(op, before.server)
	}
}

// isAnswered reports whether a server has executed or refused a request.
func isAnswered(err error) bool { return err == nil || zkutil.IsRefused(err) }

// readNode reads a znode without a watch.
func (g *gate) readNode(ctx context.Context, path string) (Node, error) {
	a, err := g.run(ctx, readCall(path))
	return Node{a.Data, a.Stat}, err
}

func (g *gate) readStat(ctx context.Context, path string) (Node, error) {
	a, err := g.run(ctx, &call{Request: wire.Request{Op: proto.OpExists, Path: path}, what: "read", where: path})
	if isUnreadable(err) {
		return Node{}, nil
	}
	return Node{Stat: a.Stat}, err
}
