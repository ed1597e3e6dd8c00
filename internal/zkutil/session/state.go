package session

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// State is the state of a session's connection, numbered as in package recipes.
type State int

// The states. Reconnected is only ever an event: the state is then Connected.
const (
	Suspended State = iota
	Connected
	Reconnected
	Lost
	Closed
)

// link is the connection, as seen in the events of zk.Conn, and the resulting state. Guarded by Session.mu.
type link struct {
	s           *Session
	conn        *zk.Conn
	state       State
	changes     zkutil.Changes // of the link
	isConnected bool           // from the handshake to the disconnect
	changedAt   time.Time      // when isConnected last changed
	epoch       uint64         // counts the handshakes
	id          int64          // of the session; 0: expired, with no successor yet
	failure     error          // of the latest dial or handshake
	hopeless    error          // why all servers refuse us, where another attempt would not change the answer
	hopelessAt  time.Time      // since when they refuse; zero: they do not, or not any more

	// Of an adopted connection that reaches servers without getting the session back:
	refusedSince  time.Time // zero: the session came back
	isRefusalTold bool      // the refusal has been logged

	readers map[*reader]struct{} // the subscriptions
	tracked chan struct{}        // closed when the ensemble's configuration was first read, or refused; nil: it is not tracked
}

// OnHandshake takes the id and the timeout granted by a handshake: see wire.owner.
func (o wireOwner) OnHandshake(id int64, timeout time.Duration, beganAt time.Time) (lifetime time.Duration) {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.ledger.Timeout()
	if s.link.epoch == 0 {
		before = 0
	}
	s.report.noteGrantLocked(timeout, before)
	s.ledger.OnTimeout(timeout, id != s.link.id)
	s.link.setSessionLocked(id)
	s.ledger.SetBound(s.wire.IsBound())
	if s.ledger.OnHandshake(beganAt) {
		s.keeper.wake()
	}
	return s.ledger.Lifetime()
}

// OnLostHandshake takes back trust: see wire.owner and trust.Ledger.
func (o wireOwner) OnLostHandshake(beganAt time.Time) {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ledger.OnLostHandshake(beganAt) {
		s.keeper.wake()
	}
}

// setSessionLocked makes id the session, and ends the previous session.
func (l *link) setSessionLocked(id int64) {
	s := l.s
	if id == l.id {
		return
	}
	if l.id != 0 {
		l.endSessionLocked(errExpired)
	}
	s.silence.endLocked()
	l.id = id
	s.ledger.OnNewSession(s.clock.Now())
}

// OnFailure records the failure of a dial or a handshake: see wire.owner.
func (o wireOwner) OnFailure(err error, isHopeless bool) {
	s := o.s
	s.mu.Lock()
	s.link.failure, s.report.failure = err, err
	s.link.noteHopelessLocked(isHopeless)
	if isHopeless && s.link.hopeless == nil {
		s.link.hopeless = err
		s.link.announceLocked()
		s.link.tellHopelessLocked(err)
	}
	s.mu.Unlock()
	s.Log(slog.LevelDebug, "connection attempt failed", "err", err)
}

// errBound is why a session that ends with its connection is over.
var errBound = fmt.Errorf("%w: these servers resume no session after a disconnect", zkutil.ErrSessionLost)

// onEvent is zk.Conn's event callback. It must neither block nor call zk.Conn's requests, because it
// runs inside zk.Conn's locks.
func (l *link) onEvent(event zk.Event) {
	s := l.s
	switch {
	case event.Type != zk.EventSession:
		s.watches.fire(event.Path, event.Type)
	case event.State == zk.StateHasSession:
		l.onConnected(event.Server)
	case event.State == zk.StateConnected && s.wire == nil:
		l.onReached()
	case event.State == zk.StateDisconnected:
		l.onDisconnected()
	case event.State == zk.StateExpired:
		s.mu.Lock()
		defer s.mu.Unlock()
		l.endSessionLocked(errExpired)
		l.announceLocked()
	}
}

func (l *link) onConnected(server string) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wire == nil { // nothing has called OnHandshake
		l.setSessionLocked(l.conn.SessionID())
	} else {
		server = s.wire.Line().Server
		s.watches.loseLocked()
	}
	s.report.server = server
	s.gate.optional.enter(server, s.ledger.IsBound())
	isFirst := l.epoch == 0
	l.epoch++
	s.ledger.OnConnected()
	l.isConnected, l.changedAt, l.failure = true, s.clock.Now(), nil
	l.refusedSince, l.isRefusalTold = time.Time{}, false
	switch {
	case isFirst:
		l.enterStateLocked(Connected, nil)
	case l.state != Connected: // an adopted connection may report the handshake twice
		l.enterStateLocked(Reconnected, nil)
	}
	l.hopeless = nil // a later series of refusals is told again
	l.noteHopelessLocked(false)
	l.announceLocked()
}

func (l *link) onDisconnected() {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.isConnected {
		return
	}
	l.isConnected, l.changedAt = false, s.clock.Now()
	s.ledger.OnDisconnected()
	if s.cfg.SuspendEnds {
		s.holds.endAllLocked(zkutil.ErrSuspended)
	}
	why := l.whyDisconnectedLocked()
	s.report.failure = why
	if l.state != Lost {
		l.enterStateLocked(Suspended, why)
	}
	if s.ledger.IsBound() {
		l.endSessionLocked(errBound)
	}
	l.announceLocked()
}

// endSessionLocked ends the holds of a session that has expired or was given up.
func (l *link) endSessionLocked(why error) {
	s := l.s
	l.id = 0
	s.budget.EndSession()
	s.holds.endAllLocked(zkutil.ErrSessionLost)
	if l.state != Lost && l.epoch > 0 {
		l.enterStateLocked(Lost, why)
	}
}

// enterStateLocked publishes a state to the readers, the log and the traces. why is the reason of a Suspended or
// Lost. Closed is final.
func (l *link) enterStateLocked(state State, why error) {
	s := l.s
	if l.state == Closed {
		return
	}
	before := l.state
	l.state = state
	if state == Reconnected {
		l.state = Connected
	}
	s.report.showStateLocked(before, state, why)
	for r := range l.readers {
		r.postLocked(state)
	}
}

// announceLocked wakes the keeper and everyone who waits for a change of the session.
func (l *link) announceLocked() {
	s := l.s
	l.changes.AnnounceLocked()
	s.keeper.wake()
}

// Snapshot is the state of a session at a moment.
type Snapshot struct {
	Epoch     uint64          // counts handshakes
	ID        int64           // of the session; 0: expired, with no successor yet
	IsClosing bool            // Close has begun
	Changed   <-chan struct{} // closed when any field above, or the state of the connection, has changed
}

// Snapshot returns the present state of the session.
func (s *Session) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Snapshot{s.link.epoch, s.link.id, s.life.isClosingLocked(), s.link.changes.ChangedLocked()}
}

// IsConnected reports whether the session is connected to a server.
func (s *Session) IsConnected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link.isConnected
}

// AwaitConnected waits until the session is connected to a server.
func (s *Session) AwaitConnected(ctx context.Context) error {
	return s.link.awaitCondition(ctx, func() bool { return s.link.isConnected })
}

// awaitCondition blocks until condition is true. condition is called under s.mu.
func (l *link) awaitCondition(ctx context.Context, condition func() bool) error {
	s := l.s
	for {
		s.mu.Lock()
		if s.life.isClosingLocked() {
			s.mu.Unlock()
			return zkutil.ErrClosed
		}
		isMet, changed := condition(), l.changes.ChangedLocked()
		s.mu.Unlock()
		if isMet {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return zkutil.Interrupted(ctx, nil)
		}
	}
}

// awaitConditionUntil blocks until condition is true, or until limit, which may be nil. It reports whether condition is true.
// condition is called under s.mu.
func (l *link) awaitConditionUntil(limit <-chan time.Time, condition func() bool) bool {
	s := l.s
	for {
		s.mu.Lock()
		isMet, changed := condition(), l.changes.ChangedLocked()
		s.mu.Unlock()
		if isMet {
			return true
		}
		select {
		case <-changed:
		case <-limit:
			return false
		}
	}
}

// State returns the current state.
func (s *Session) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link.state
}

// String returns the state's name.
func (s State) String() string {
	return [...]string{"suspended", "connected", "reconnected", "lost", "closed"}[s]
}

// Servers that were emptied, or restored from a backup, disconnect clients that have seen newer transactions:
// see wire's answerForgotten. On an own connection the wire detects the lost data, and a new session begins. An
// adopted connection keeps asking for the old session forever, and only the connection's owner can open
// another.

var errForgotten = fmt.Errorf("%w: the servers have forgotten what it has seen: they were emptied or restored", zkutil.ErrSessionLost)

// GiveUpAfter returns for how long all servers have to refuse the session before the session may be given up:
// as long as any server would keep the session.
func (o wireOwner) GiveUpAfter() time.Duration {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.LongestLifetime()
}

// OnForgotten gives up the session: see wire.owner. Soon afterwards zk.Conn reports the end of the session.
func (o wireOwner) OnForgotten(server string) {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link.failure, s.report.failure = errForgotten, errForgotten
	s.link.endSessionLocked(errForgotten)
	s.Log(slog.LevelWarn, "session given up for a new one: fencing tokens may begin again", "server", server, "err", errForgotten)
}

// refusedTooLong is how long an adopted connection without a known session timeout is refused before a warning
// is logged.
const refusedTooLong = time.Minute

// onReached is called when an adopted connection has reached a server, before the handshake. If it is called
// repeatedly and no session follows, the servers refuse the session.
func (l *link) onReached() {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.isConnected || l.epoch == 0 || l.isRefusalTold {
		return
	}
	now := s.clock.Now()
	if l.refusedSince.IsZero() {
		l.refusedSince = now
	}
	limit := s.ledger.LongestLifetime()
	if limit == 0 {
		limit = refusedTooLong
	}
	if now.Sub(l.refusedSince) < limit {
		return
	}
	l.isRefusalTold = true
	s.Log(slog.LevelWarn, "the servers accept the adopted connection, and refuse its session: there is no quorum, or they were emptied or restored; "+
		"then the connection never comes back, and its owner has to open another one", "after", now.Sub(l.refusedSince))
}

// reader is one subscription.
type reader struct {
	pending []State // guarded by Session.mu
	wake    chan struct{}
}

// While more than maxPending states wait for a slow reader, besides those in the channel, the reader misses
// pairs of Suspended and Reconnected. While more than maxLosses wait, because a Lost came between most pairs,
// the reader misses the oldest losses.
const (
	maxPending = 64
	maxLosses  = 1024
)

// postLocked appends a state for the reader.
func (r *reader) postLocked(state State) {
	r.pending = dropLosses(dropPairs(append(r.pending, state), maxPending), maxLosses)
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// dropLosses removes the states from a Suspended or a Lost to the next Reconnected, the oldest first, until no
// more than limit states are left. So each state still follows from the previous state, and the latest Lost
// stays.
func dropLosses[S ~int](states []S, limit int) []S {
	isBegin := func(state S) bool { return state == S(Suspended) || state == S(Lost) }
	for len(states) > limit {
		begin := slices.IndexFunc(states, isBegin)
		length := slices.Index(states[max(0, begin):], S(Reconnected)) + 1
		isLatest := begin < 0 || length == 0 || !slices.Contains(states[begin+length:], S(Lost))
		if isLatest {
			return states
		}
		states = slices.Delete(states, begin, begin+length)
	}
	return states
}

// dropPairs removes pairs of a Suspended and the Reconnected right after it from states, the latest first,
// until no more than limit are left.
func dropPairs[S ~int](states []S, limit int) []S {
	for i := len(states) - 2; i >= 0 && len(states) > limit; i-- {
		if states[i] == S(Suspended) && states[i+1] == S(Reconnected) {
			states = slices.Delete(states, i, i+2)
			i = min(i, len(states)-1) // the states before and after may be a pair now
		}
	}
	return states
}

// Subscribe returns a channel of the states of s as they change, the present state first, and a function to end
// the subscription. The channel is closed after Closed, or by stop. States unread by then stay in the channel.
func Subscribe[S ~int](s *Session) (states <-chan S, stop func()) {
	out := make(chan S, maxUnread)
	r := &reader{wake: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link.state == Closed {
		out <- S(Closed)
		close(out)
		return out, func() {}
	}
	r.postLocked(s.link.state)
	s.link.readers[r] = struct{}{}
	ctx, cancel := context.WithCancel(s.life.tasksCtx)
	ended := make(chan struct{})
	if !s.backgroundLocked(func(context.Context) {
		defer close(ended)
		defer close(out)
		defer cancel()
		relay(ctx, s, r, out)
	}) {
		close(ended)
	}
	return out, func() {
		cancel()
		<-ended
	}
}

// maxUnread is how many states the channel of a subscription holds.
const maxUnread = 16

// relay moves states from r to out until ctx ends.
func relay[S ~int](ctx context.Context, s *Session, r *reader, out chan S) {
	take := func(n int) (states []State) {
		s.mu.Lock()
		defer s.mu.Unlock()
		n = min(n, len(r.pending))
		states, r.pending = r.pending[:n:n], r.pending[n:]
		return states
	}
	var unread []S
	for ctx.Err() == nil {
		next := take(1)
		if len(next) == 0 {
			select {
			case <-r.wake:
			case <-ctx.Done():
			}
			continue
		}
		select {
		case out <- S(next[0]):
		case <-ctx.Done():
			unread = append(unread, S(next[0]))
		}
	}
	s.mu.Lock()
	delete(s.link.readers, r)
	s.mu.Unlock()
	for _, state := range take(math.MaxInt) {
		unread = append(unread, S(state))
	}
	leaveUnread(out, unread)
}

// leaveUnread puts the unread states into out, except those that a reader may miss. The order is right even
// while somebody reads, because nobody else sends.
func leaveUnread[S ~int](out chan S, unread []S) {
	var waiting []S
	for len(out) > 0 {
		select {
		case state := <-out:
			waiting = append(waiting, state)
		default:
		}
	}
	unread = dropLosses(dropPairs(append(waiting, unread...), maxUnread), maxUnread)
	for _, state := range unread[max(0, len(unread)-maxUnread):] {
		out <- state
	}
}

// Health returns the present condition of the session.
func (s *Session) Health() Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := Health{
		State: s.link.state, Since: s.report.since, LastProof: s.report.lastProofLocked(), SessionTimeout: s.ledger.Timeout(), Err: s.report.failure,
	}
	if s.link.isConnected && s.link.state != Closed {
		h.Server = s.report.server
	}
	return h
}

// authenticate waits for the session and presents the credentials.
func (l *link) authenticate(ctx context.Context) error {
	s := l.s
	if err := l.awaitCondition(ctx, func() bool { return l.isConnected || l.hopeless != nil }); err != nil {
		return fmt.Errorf("%w: %w", err, l.whyNotConnected())
	}
	if why := l.whyHopeless(); why != nil {
		return why
	}
	for _, auth := range s.cfg.Auth {
		_, err := Repeat(ctx, s, func() (struct{}, error) { return struct{}{}, s.gate.addAuth(ctx, auth) })
		if err != nil {
			return fmt.Errorf("authenticate with scheme %q: %w", auth.Scheme, err)
		}
	}
	return nil
}

// whyHopeless returns why no server will ever accept the client, nil if a server still may.
func (l *link) whyHopeless() error {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.isConnected {
		return nil
	}
	return l.hopeless
}

// whyNotConnected returns why no handshake has succeeded yet.
func (l *link) whyNotConnected() error {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.failure != nil {
		return l.failure
	}
	if err := s.wire.Dialer.PendingLookup(); err != nil {
		return err
	}
	if l := s.wire.Line(); l != nil {
		return fmt.Errorf("handshake with %s: no answer yet", l.Peer())
	}
	return zkutil.ErrUnavailable
}

// catchUpWithConn makes up for events dropped by an adopted connection: the channel has room for only six,
// watch events included. Another call always follows, because zk.Conn sends an event for every attempt to
// connect.
func (l *link) catchUpWithConn() {
	s := l.s
	s.mu.Lock()
	isUp, isOther, wasUp := l.conn.State() == zk.StateHasSession, l.conn.SessionID() != l.id, l.isConnected
	s.mu.Unlock()
	switch {
	case wasUp && !isUp:
		l.onDisconnected()
	case isUp && (isOther || !wasUp):
		l.onConnected(s.Conn().Server())
	}
}

func (l *link) hasNeverConnected() bool {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.epoch == 0
}

// whyUnavailable returns why a request is still unanswered.
func (l *link) whyUnavailable() error {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.gate.entry.isDue:
		return s.gate.entry.whyUnavailableLocked(l)
	case l.isConnected:
		return errUnanswered
	case l.failure == nil:
		return zkutil.ErrUnavailable
	}
	return fmt.Errorf("%w: %w", zkutil.ErrUnavailable, connectionError{l.failure})
}

// latestIDLocked returns the id of the session that owns the latest znodes, 0 if expired. An adopted zk.Conn
// may have sent a create in a session whose event is yet to come.
func (l *link) latestIDLocked() int64 {
	s := l.s
	if s.wire == nil {
		return l.conn.SessionID()
	}
	return l.id
}

// hasOtherSessionThan reports whether the connection has a session other than id.
func (l *link) hasOtherSessionThan(id int64) bool {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.id != 0 && l.id != id
}

// whyDisconnectedLocked returns why the connection was just lost.
func (l *link) whyDisconnectedLocked() error {
	s := l.s
	if s.gate.entry.failure != nil { // a server that refuses a credential hangs up afterwards
		return connectionError{s.gate.entry.failure}
	}
	if s.wire != nil {
		if err := s.wire.Line().Failure(); err != nil {
			return connectionError{err}
		}
	}
	return errDisconnected
}
