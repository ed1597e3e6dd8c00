package core

import (
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
)

// The explorer runs the shipping Session, Hold and Contact of each client against a model of ZooKeeper, in integer time, through every course of
// events within stated bounds. This file has the model. Every rule of the servers names its source in ZooKeeper 3.8.
//
// What nothing delays happens at once: only faults let time pass between a request, its commit and its answer.

// whole is the longest session timeout in units of time. All fractions of it that the core uses are whole numbers on clocks at 8/9 and 10/9.
const whole = 14400

// bounds are the bounds of an exploration.
type bounds struct {
	lists    int64    // the time between two reports of a server to its leader: half a tick
	phases   []int64  // when the first report is due
	grants   [2]int64 // the timeout that each of the two followers grants
	path     []int    // the followers on which the client was before the course begins; nil: 0 alone
	rates    []rate   // of the clients' clocks
	clients  int      // with 2, the second waits for the lock
	lone     bool     // the client knows a single address
	waits    bool     // client 0 waits at first, and has its turn at any time
	idles    bool     // client 0 is idle at first, and acquires the lock at any time
	works    bool     // a function of the user runs under the hold; the client may close, and the function may return
	leaves   bool     // that function may release the lock
	renews   bool     // after the end of a session the client goes on with another, and may acquire the lock again
	suspends bool     // holds end with the connection
	isBound  bool     // the servers end a session with its connection, as ClickHouse Keeper does
	writes   int      // of the application
	faults   []kind
	most     int   // faults in one course
	grid     int64 // the application and the faults act at multiples, and right before and after each report
	horizon  int64 // the length of a course; 0: none
	explicit bool  // a server is cut off as a fault only. Otherwise every state may be the last before the cut
	met      *met
}

// met has what happened in explorations, so that no cast is there in vain.
type met struct {
	steps    map[kind]bool
	verdicts map[Verdict]bool
	causes   map[error]bool // of ends of holds
	fates    map[Fate]bool
	states   map[connstate.State]bool
	leaves   bool // a silent server
}

func newMet() *met {
	return &met{map[kind]bool{}, map[Verdict]bool{}, map[error]bool{}, map[Fate]bool{}, map[connstate.State]bool{}, false}
}

// rate is how many units pass on a client's clock in how many units of the servers'.
type rate struct{ num, den int64 }

func (b *bounds) servers() []int {
	if b.path != nil {
		return b.path
	}
	return []int{0}
}

// world is one state of everything.
type world struct {
	bounds  *bounds
	premise *premise // nil for the shipping code
	now     int64    // by the servers' clock
	began   int64

	leader   [2]atLeader // by client
	nextList int64
	isPaused bool // the leader
	servers  [2]follower
	isSlow   bool // the quorum commits nothing

	lines   []line
	lineIDs int32
	clients []client
	writes  int  // left
	faults  int  // so far
	holder  int  // the client whose turn it is
	isTurn  bool // of client 0, which waited or idled
	isFree  bool // client 0's znode is deleted

	sessions int64 // how many there were
}

// atLeader is the leader's record of a session. now < expiry: it lives (SessionTrackerImpl).
type atLeader struct {
	id              int64
	expiry, created int64
	owner           int32 // the connection that may write (PrepRequestProcessor, checkSession)
}

// follower is a server. touched has the timeout of each session noted since the last report, 0 for none (LearnerSessionTracker.touchTable).
type follower struct {
	isCut   bool
	touched [2]int64
}

// line is a connection.
type line struct {
	id             int32
	client, server int
	session        int64
	contact        Contact
	xid            int32
	up, at         []request // on the way to the server; at the server without an answer
	down           []answer
	isStuck        bool  // nothing passes
	isDeaf         bool  // no answer passes
	isLeft         bool  // the client left it, so that only late proofs count
	isOpening      bool  // the handshake has no answer yet
	isNew          bool  // the handshake makes a session
	isExecuted     bool  // the handshake was executed
	isLoginFailing bool  // the login behind the handshake will fail
	beganAt        int64 // by the client's clock
}

type request struct{ xid, op int32 }

type answer struct {
	xid         int32
	isCommitted bool
}

// client is a session's shell around the shipping core, in the order of calls of session and wire.
type client struct {
	rate       rate
	core       Session
	hold       Hold
	wakeAt     time.Time       // by the latest plan, as for the keeper
	waits      int             // how many waits and requests use the session
	shown      connstate.State // the latest state that was published
	isOwner    bool            // hold was granted
	deletes    bool            // the znode of the hold
	isOver     bool            // the next handshake asks for another session
	claim      Claim
	isClaiming bool
	isPaused   bool
	hasEnded   bool  // nothing more can happen
	nextPing   int64 // by the servers' clock
	server     int
	unsent     []Frame // of a send in which the process was paused
	unsentAt   time.Time
}

// isHolding reports whether the client has a hold that did not end.
func (c *client) isHolding() bool { return c.isOwner && c.hold.Cause == nil }

func (c *client) use(now time.Time) {
	c.waits++
	if c.core.BeginUse() {
		c.core.OnUse(now)
	}
}

// act carries out an outcome (see Session.actLocked of package session).
func (w *world) act(c *client, o Outcome) {
	if o.End.Cause != nil && c.isHolding() {
		w.end(c, o.End)
	}
	for _, change := range o.Enter {
		w.bounds.met.states[change.To] = true
		if c.shown = change.To; c.shown == connstate.Reconnected {
			c.shown = connstate.Connected
		}
	}
}

// end ends the hold of a client (see Session.endAsLocked of package session).
func (w *world) end(c *client, e End) {
	w.premise.onEnd(c)
	fate := c.core.OnEnd(&c.hold, e)
	w.bounds.met.causes[e.Cause], w.bounds.met.fates[fate] = true, true
	c.deletes = w.bounds.works && fate != Stays
	w.premise.afterEnd(c)
}

func (w *world) clone() *world {
	next := *w
	next.clients = slices.Clone(w.clients)
	for i := range next.clients {
		c := &next.clients[i]
		c.core.beatsSentAt = slices.Clone(c.core.beatsSentAt)
	}
	next.lines = slices.Clone(w.lines)
	for i := range next.lines {
		l := &next.lines[i]
		l.up, l.at, l.down = slices.Clone(l.up), slices.Clone(l.at), slices.Clone(l.down)
		l.contact.inFlight = framesInFlight{frames: slices.Clone(l.contact.inFlight.all())}
		l.contact.gaps = slices.Clone(l.contact.gaps)
	}
	return &next
}

// clock returns the time by a client's clock.
func (w *world) clock(c *client) int64 { return w.now * c.rate.num / c.rate.den }

func moment(units int64) time.Time { return time.Unix(0, units) }

func (w *world) time(c *client) time.Time { return moment(w.clock(c)) }

// byServers returns when a client's clock shows t, by the servers' clock.
func (c *client) byServers(t time.Time) int64 {
	return (t.UnixNano()*c.rate.den + c.rate.num - 1) / c.rate.num
}

// start returns the world in which client 0 just acquired the lock.
func start(b *bounds, p *premise, phase int64, r rate) *world {
	w := &world{bounds: b, premise: p, now: 9 * whole, began: 9 * whole, writes: b.writes}
	w.nextList = w.now + phase
	for i := range b.clients {
		w.clients = append(w.clients, client{rate: r})
		if i > 0 {
			w.clients[i].rate = rate{1, 1}
		}
		c := &w.clients[i]
		c.core = NewSession(NewLedger(whole, 0), b.suspends)
		c.isOver = true
		if !b.idles {
			c.use(w.time(c))
		}
		path := b.servers()
		w.dial(i, path[0])
		for _, server := range path[1:] {
			w.disconnect(i)
			w.dial(i, server)
		}
		w.send(i, proto.OpCreate2)
		w.settle()
		if i == 0 && !b.waits && !b.idles && !w.grant(i) {
			panic("not granted")
		}
		if i == 0 && b.works {
			c.hold.BeginWork()
		}
	}
	w.settle()
	return w
}

// Servers.

// report is the answer of every follower to a ping of the leader. It has the sessions noted, each with the timeout of its own connection.
// The leader moves their expiry to now + that, perhaps to an earlier time (Leader.lead, Learner.ping, LearnerSessionTracker.snapshot,
// LearnerHandler PING, SessionTrackerImpl.touchSession, ExpiryQueue.update).
func (w *world) report() {
	for i := range w.servers {
		s := &w.servers[i]
		if s.isCut {
			continue
		}
		for j, timeout := range s.touched {
			if timeout > 0 {
				w.touchLeader(j, timeout)
			}
		}
		s.touched = [2]int64{}
	}
}

// touchLeader touches no expired session (SessionTrackerImpl.touchSession).
func (w *world) touchLeader(session int, timeout int64) {
	if w.isAlive(session) {
		w.leader[session].expiry = w.now + timeout
	}
}

func (w *world) isAlive(session int) bool { return w.now < w.leader[session].expiry }

// touch notes a request in the follower's table, with the timeout of the connection (ZooKeeperServer.touch). A session before the present one
// has expired, so that the leader takes no touch of it.
func (w *world) touch(l *line) {
	if l.session != w.leader[l.client].id {
		return
	}
	w.servers[l.server].touched[l.client] = w.bounds.grants[l.server]
}

// executeHandshake renews the session at the leader alone, and in no follower's table (ZooKeeperServer.reopenSession, Learner.validateSession,
// Leader.revalidateSession). A handshake that makes a session is a transaction, for which every server notes the session (LearnerSessionTracker.commitSession).
func (w *world) executeHandshake(l *line) {
	if l.isExecuted || w.servers[l.server].isCut || w.isPaused {
		return
	}
	l.isExecuted = true
	granted := w.bounds.grants[l.server]
	if l.isNew && l.session > w.leader[l.client].id { // otherwise the client has another session by now
		w.leader[l.client] = atLeader{id: l.session, expiry: w.now + granted, created: granted}
		for i := range w.servers {
			if !w.servers[i].isCut {
				w.servers[i].touched[l.client] = granted
			}
		}
	}
	if l.session == w.leader[l.client].id {
		w.leader[l.client].owner = l.id
		w.touchLeader(l.client, granted)
	}
}

// serve lets a server handle what it can: requests of a session are answered in order (CommitProcessor).
func (w *world) serve(l *line) {
	if l.isOpening {
		return
	}
	if !l.isStuck {
		for range l.up {
			w.touch(l)
		}
		l.at, l.up = append(l.at, l.up...), nil
	}
	for len(l.at) > 0 {
		isCommitted := false
		if isWrite(l.at[0].op) {
			if w.servers[l.server].isCut || w.isSlow || w.isPaused {
				return
			}
			isCommitted = w.isAlive(l.client) && w.leader[l.client].owner == l.id
			w.isFree = w.isFree || isCommitted && l.at[0].op == proto.OpDelete
		}
		l.down, l.at = append(l.down, answer{l.at[0].xid, isCommitted}), l.at[1:]
	}
}

func isWrite(op int32) bool { return Frame{Op: op}.isWrite() && op != proto.OpSync }

// electLeader gives every session its full timeout of creation, and drops what the followers noted (SessionTrackerImpl, with
// ZKDatabase.sessionsWithTimeouts; Learner.shutdown). Connections to servers that follow the new leader end.
func (w *world) electLeader() {
	for i := range w.leader {
		w.leader[i].expiry = w.now + w.leader[i].created
	}
	for i := range w.servers {
		w.servers[i] = follower{isCut: w.servers[i].isCut}
	}
	for i := range w.clients {
		if w.clients[i].core.IsConnected && !w.servers[w.clients[i].server].isCut {
			w.disconnect(i)
			w.dial(i, w.clients[i].server)
		}
	}
}

// Clients.

func (w *world) line(client int) *line {
	for i := range w.lines {
		if l := &w.lines[i]; l.client == client && !l.isLeft {
			return l
		}
	}
	return nil
}

// dial connects to a server (see Wire.Dial).
func (w *world) dial(client, server int) { w.dialFaulty(client, server, reset) }

// dialFaulty is dial with a fault during the handshake.
func (w *world) dialFaulty(client, server int, fault kind) {
	c := &w.clients[client]
	w.lineIDs++
	c.server = server
	l := line{id: w.lineIDs, client: client, server: server, session: c.core.ID, isOpening: true, isNew: c.isOver, beganAt: w.clock(c)}
	if l.isNew {
		w.sessions++
		l.session = w.sessions
	}
	l.isStuck, l.isDeaf, l.isLoginFailing = fault == resetStuck, fault == resetBehind, fault == failLogin
	w.lines = append(w.lines, l)
	if !l.isStuck {
		w.finishHandshake(&w.lines[len(w.lines)-1])
	}
}

// record takes the answer to a write (see keeper.recordAnswerLocked of package session).
func (w *world) record(l *line, write Write) {
	c := &w.clients[l.client]
	w.act(c, w.premise.record(&c.core, l.session, write))
}

// finishHandshake answers a handshake (see Line.peekHandshake, finishHandshake and link.onConnected).
func (w *world) finishHandshake(l *line) {
	c := &w.clients[l.client]
	w.executeHandshake(l)
	switch {
	case !l.isExecuted || l.isStuck || l.isDeaf || c.isPaused:
		return
	case !w.isAlive(l.client) || w.leader[l.client].owner != l.id:
		w.act(c, c.core.OnSessionOver(ErrExpired, w.time(c)))
		if c.isOver, c.hasEnded = true, !w.bounds.renews; w.bounds.renews {
			client, server := l.client, l.server
			w.close(l.id)
			w.dial(client, server)
		}
		return
	}
	granted := time.Duration(w.bounds.grants[l.server])
	if !l.isNew {
		w.premise.onGranted(&c.core, l.session, granted, moment(l.beganAt), l.isLoginFailing)
	}
	if l.isLoginFailing {
		client := l.client
		w.close(l.id)
		w.dialFaulty(client, w.otherServer(c), resetStuck)
		return
	}
	l.isOpening, c.isOver = false, false
	w.act(c, w.premise.onSession(c, l.session, granted, w.bounds.isBound, w.time(c)))
	w.premise.onHandshake(&c.core.Ledger, granted)
	l.contact.OnHandshake(w.time(c), Handshake{BeganAt: moment(l.beganAt), Timeout: c.core.Lifetime(), IsResumed: !l.isNew})
	w.premise.onContact(&l.contact)
	w.act(c, c.core.OnConnected(w.time(c)))
	c.nextPing = w.now + w.pingInterval(c)
}

func (w *world) pingInterval(c *client) int64 {
	interval := c.core.Lifetime() / PingsPerTimeout
	return int64(interval) * c.rate.den / c.rate.num
}

func (w *world) otherServer(c *client) int {
	if w.bounds.lone {
		return c.server
	}
	return 1 - c.server
}

// disconnect ends the client's connection. What was under way is lost.
func (w *world) disconnect(client int) {
	w.close(w.line(client).id)
	if w.bounds.isBound {
		w.leader[client].expiry, w.clients[client].isOver = min(w.leader[client].expiry, w.now), true
	}
	w.onDisconnected(client)
}

func (w *world) close(id int32) {
	w.lines = slices.DeleteFunc(w.lines, func(l line) bool { return l.id == id })
}

func (w *world) onDisconnected(client int) {
	c := &w.clients[client]
	if c.core.IsConnected {
		w.act(c, c.core.OnDisconnected(nil, w.time(c)))
		c.unsent = nil
	}
}

// leave leaves a silent server (see Line.Abandon).
func (w *world) leave(client int) {
	w.bounds.met.leaves = true
	l, c := w.line(client), &w.clients[client]
	if l.contact.HasProofInFlightAfter(time.Time{}) || len(l.up) > 0 {
		l.contact.OnGivenUp()
		l.isLeft = true
	} else {
		w.close(l.id)
	}
	w.onDisconnected(client)
	w.dial(client, w.otherServer(c))
}

// send sends a request of the engine's own, or a ping.
func (w *world) send(client int, op int32) {
	l, c := w.line(client), &w.clients[client]
	f := Frame{XID: proto.XidPing, Op: op}
	if op != proto.OpPing {
		l.xid++
		f.XID, f.IsOwn = l.xid, true
	}
	w.beginSend(l, c, f)
	if !c.isPaused {
		w.endSend(client)
	}
}

func (w *world) beginSend(l *line, c *client, f Frame) {
	c.unsent, c.unsentAt = []Frame{f}, w.time(c)
	if l.contact.OnSend(c.unsentAt, c.core.Standing > 0, c.unsent) {
		if w.premise.has(noPingAhead) {
			l.contact.inFlight.remove(len(l.contact.inFlight.all()) - 2)
			return
		}
		c.unsent = []Frame{{XID: proto.XidPing, Op: proto.OpPing}, f}
	}
}

func (w *world) endSend(client int) {
	l, c := w.line(client), &w.clients[client]
	if l == nil || len(c.unsent) == 0 {
		return
	}
	now := w.time(c)
	if w.premise.has(sendsAreInstant) {
		now = c.unsentAt
	}
	l.contact.OnSent(now, c.unsentAt, c.unsent)
	for _, f := range c.unsent {
		l.up = append(l.up, request{f.XID, f.Op})
	}
	c.unsent = nil
}

// receive takes an answer (see gate.finish and readAbandonedAnswer).
func (w *world) receive(id int32, a answer) {
	l := w.byID(id)
	c := &w.clients[l.client]
	now := w.time(c)
	f, ok := w.premise.onAnswer(&l.contact, now, c.core.Standing > 0, a.xid)
	l.contact.OnBytes(now)
	switch {
	case !ok:
		return
	case f.IsProof() && (!l.isLeft || a.isCommitted):
		w.record(l, Write{SentAt: f.SentAt, CameAt: now, IsCommitted: a.isCommitted, Line: contactLine{w.premise, &l.contact, now}})
	case !l.isLeft && (w.premise.has(pingsProve) || w.premise.has(syncProves) && f.Op == proto.OpSync):
		w.record(l, Write{SentAt: f.SentAt, CameAt: now, IsCommitted: true, Line: contactLine{w.premise, &l.contact, now}})
	}
	if f.IsOwn {
		c.core.OnAnswer(now)
	}
	c.deletes = c.deletes && (f.Op != proto.OpDelete || !a.isCommitted)
	if f.IsProof() && !l.isLeft && !a.isCommitted { // the session expired or moved, so the server hangs up
		client := l.client
		w.disconnect(client)
		w.dial(client, w.otherServer(c))
		return
	}
	if l.isLeft && !l.contact.HasProofInFlightAfter(c.core.proofSentAt) && len(l.up) == 0 {
		w.close(id)
	}
}

func (w *world) byID(id int32) *line {
	return &w.lines[slices.IndexFunc(w.lines, func(l line) bool { return l.id == id })]
}

// contactLine is Line.ProofLimit.
type contactLine struct {
	premise *premise
	contact *Contact
	now     time.Time
}

func (l contactLine) ProofLimit(sentAt time.Time, horizon, timeout time.Duration) time.Time {
	return l.premise.limit(l.contact, l.now, sentAt, horizon, timeout)
}

func (w *world) facts(client int) Facts {
	c := &w.clients[client]
	f := Facts{Now: w.time(c), Addresses: 2}
	if w.bounds.lone {
		f.Addresses = 1
	}
	if c.core.HasLineFacts() {
		w.line(client).contact.AddTo(&f)
		if w.premise.has(noLeaveOverWrites) {
			f.WriteSentAt = time.Time{}
		}
	}
	return f
}

// tick does what the plan says (see keeper.tick). It reports whether anything was done. Nothing is watched.
func (w *world) tick(client int) (isDone bool) {
	c := &w.clients[client]
	now := w.time(c)
	c.core.lastAuditAt, c.core.lastReadAt = now, now
	o, p := c.core.OnTick(w.facts(client))
	c.wakeAt = p.NextAt
	if w.act(c, o); o.End.Cause != nil && w.bounds.clients == 1 && !w.bounds.renews {
		c.hasEnded = true
		return true
	}
	switch {
	case p.LeaveServer:
		w.leave(client)
		return true
	case p.Beat:
		c.core.OnBeatSent(now)
		w.send(client, proto.OpMulti)
		return true
	}
	return o.End.Cause != nil
}

// runTimers does what is due for a client: pings, the end of a handshake's patience, and the plan.
func (w *world) runTimers(client int) (isDone bool) {
	c := &w.clients[client]
	l := w.line(client)
	switch {
	case c.isPaused || c.hasEnded:
		return false
	case l.isOpening && w.clock(c)-l.beganAt >= int64(c.core.Period()):
		l.isLeft = true // the server may execute the handshake later
		w.dial(client, w.otherServer(c))
		return true
	case c.deletes && c.core.IsConnected && !slices.ContainsFunc(l.contact.inFlight.all(), func(f Frame) bool { return f.Op == proto.OpDelete }):
		w.send(client, proto.OpDelete) // until there is an answer (see removal of package session)
		return true
	case !l.isOpening && c.nextPing <= w.now:
		c.nextPing = max(c.nextPing+w.pingInterval(c), w.now)
		if l.contact.IsPingDue(w.time(c), c.core.IsInUse(), c.core.Standing > 0) {
			w.send(client, proto.OpPing)
		}
		return true
	}
	return w.tick(client)
}

// settle runs all events that nothing delays.
func (w *world) settle() {
	for isDone := true; isDone; {
		isDone = false
		for _, id := range w.lineIDsInUse() {
			if i := slices.IndexFunc(w.lines, func(l line) bool { return l.id == id }); i >= 0 {
				isDone = w.passAnswers(id) || isDone
			}
		}
		for i := range w.clients {
			isDone = w.runTimers(i) || isDone
		}
		if w.bounds.clients > 1 && w.holder == 0 && (w.isFree || !w.isAlive(0)) {
			isDone = w.grant(1) || isDone
		}
		if c := &w.clients[0]; w.isTurn && !c.isHolding() && !c.hasEnded {
			isDone = w.grant(0) || isDone
		}
	}
}

// grant gives the lock to a client that read the queue, and found no other ahead (see Session.Grant of package session). The client proves its
// session first if needed.
func (w *world) grant(client int) (isDone bool) {
	c := &w.clients[client]
	if c.isPaused || w.line(client).contact.HasProofInFlightAfter(time.Time{}) {
		return false
	}
	if !c.isClaiming {
		if !c.core.IsConnected {
			return false
		}
		c.claim, c.isClaiming = Claim{Owner: c.core.ID, Epoch: c.core.Epoch}, true
	}
	verdict := w.premise.judge(c, w.time(c))
	w.bounds.met.verdicts[verdict] = true
	switch verdict {
	case Granted:
		c.hold, c.isOwner = c.core.OnGrant(c.claim, w.time(c)), true
		w.holder, w.isTurn, c.isClaiming = client, false, false
		return true
	case Unproven:
		if !c.core.IsConnected || w.time(c).Sub(c.core.proofSentAt) < c.core.Lifetime()/12 {
			return false // a gap limits the proof
		}
		w.send(client, proto.OpMulti)
		return true
	case Stale:
		c.isClaiming = false
		return c.core.IsConnected
	default:
		w.isTurn, c.isClaiming = false, false
		return client == 0
	}
}

func (w *world) lineIDsInUse() (ids []int32) {
	for _, l := range w.lines {
		ids = append(ids, l.id)
	}
	return ids
}

func (w *world) passAnswers(id int32) (isDone bool) {
	l := w.byID(id)
	if l.isOpening {
		if !l.isLeft && !l.isStuck {
			w.finishHandshake(l)
		}
		return false
	}
	w.serve(l)
	if l.isStuck || l.isDeaf || w.clients[l.client].isPaused {
		return false
	}
	for _, a := range l.down {
		isDone = true
		l.down = l.down[1:]
		w.receive(id, a)
		if i := slices.IndexFunc(w.lines, func(l line) bool { return l.id == id }); i < 0 {
			return true
		}
		l = w.byID(id)
	}
	return isDone
}
