package session

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
)

// link is the connection, as others see it. Guarded by Session.mu.
type link struct {
	s           *Session
	conn        *zk.Conn
	changes     zkutil.Changes // of the connection, and of the session behind it
	failure     error          // of the latest dial or handshake
	hopeless    error          // why all servers refuse us, where another attempt would not change the answer
	isGuessTold bool           // the log has a record of such a refusal that is only likely
	refusedAt   time.Time      // since when all servers refuse us, some perhaps by no more than hang-ups; zero: they do not, or not any more

	states *connstate.Feed
}

// actLocked carries out what an event means, as core.Session says. After ErrClosed the caller has to begin the removals.
func (s *Session) actLocked(o core.Outcome) (ended leavings) {
	if o.IsSessionOver {
		s.budget.EndSession()
	}
	if o.End.Cause != nil {
		ended = s.holds.endAllLocked(o.End)
	}
	for _, change := range o.Enter {
		s.report.showStateLocked(change)
		s.link.states.Post(change.To)
	}
	return ended
}

// OnGranted takes the timeout that a server granted. See wire.owner and core.Ledger.
func (o wireOwner) OnGranted(id int64, timeout time.Duration, beganAt time.Time) {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.OnGranted(id, timeout, beganAt) {
		s.keeper.wake()
	}
}

// OnHandshake takes the id and the timeout granted by a handshake. See wire.owner.
func (o wireOwner) OnHandshake(id int64, timeout time.Duration) (lifetime time.Duration) {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.core.Timeout()
	if s.core.Epoch == 0 {
		before = 0
	}
	s.report.noteGrantLocked(timeout, before)
	outcome := s.core.OnHandshake(id, timeout, s.wire.IsBound(), s.clock.Now())
	if s.actLocked(outcome); outcome.IsSessionOver {
		s.silence.End()
	}
	return s.core.Lifetime()
}

// OnFailure records the failure of a dial or a handshake. See wire.owner.
func (o wireOwner) OnFailure(err error, refusal dial.Refusal) {
	s := o.s
	s.mu.Lock()
	s.link.failure, s.report.failure = err, err
	s.link.noteRefusalLocked(refusal)
	if refusal == dial.CertainRefusal && s.link.hopeless == nil {
		s.link.hopeless = err
		s.link.announceLocked()
		s.link.tellHopelessLocked(err)
	}
	if refusal == dial.LikelyRefusal && !s.link.isGuessTold && time.Since(s.link.refusedAt) > guessedRefusal {
		s.link.isGuessTold = true
		s.link.tellHopelessLocked(err)
	}
	s.mu.Unlock()
	s.log.Log(slog.LevelDebug, "connection attempt failed", "err", err)
}

// onEvent is zk.Conn's event callback. It must neither block nor call zk.Conn's requests, because it
// runs inside zk.Conn's locks.
func (l *link) onEvent(event zk.Event) {
	s := l.s
	switch {
	case event.Type != zk.EventSession:
		s.watches.fire(event.Path, event.Type)
	case event.State == zk.StateHasSession:
		l.onConnected()
	case event.State == zk.StateDisconnected:
		l.onDisconnected()
	case event.State == zk.StateExpired:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.actLocked(s.core.OnSessionOver(core.ErrExpired, s.clock.Now()))
		l.announceLocked()
	}
}

func (l *link) onConnected() {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches.loseLocked()
	s.report.server = s.wire.Line().Server
	s.gate.optional.SetServer(s.report.server, s.core.IsBound())
	l.failure = nil
	s.actLocked(s.core.OnConnected(s.clock.Now()))
	l.hopeless = nil // a later series of refusals is logged again
	l.noteRefusalLocked(dial.NoRefusal)
	l.announceLocked()
}

func (l *link) onDisconnected() {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.core.IsConnected {
		return
	}
	s.report.failure = l.whyDisconnectedLocked()
	s.actLocked(s.core.OnDisconnected(s.report.failure, s.clock.Now()))
	l.announceLocked()
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
	IsClosing bool            // Close began
	Changed   <-chan struct{} // closed when any field above, or the state of the connection, changes
}

// Snapshot returns the present state of the session.
func (s *Session) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Snapshot{s.core.Epoch, s.core.ID, s.core.Phase >= core.Closing, s.link.changes.ChangedLocked()}
}

// IsConnected reports whether the session is connected to a server.
func (s *Session) IsConnected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.IsConnected
}

// AwaitConnected waits until the session is connected to a server.
func (s *Session) AwaitConnected(ctx context.Context) error {
	return s.link.awaitCondition(ctx, func() bool { return s.core.IsConnected })
}

// awaitCondition blocks until condition is true. condition is called under s.mu.
func (l *link) awaitCondition(ctx context.Context, condition func() bool) error {
	s := l.s
	for {
		s.mu.Lock()
		if s.core.Phase >= core.Closing {
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

// awaitConditionUntil blocks until condition is true, or until deadline. condition is called under s.mu.
func (l *link) awaitConditionUntil(deadline time.Time, condition func() bool) {
	s := l.s
	limit := time.NewTimer(time.Until(deadline))
	defer limit.Stop()
	for {
		s.mu.Lock()
		isMet, changed := condition(), l.changes.ChangedLocked()
		s.mu.Unlock()
		if isMet {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			return
		}
	}
}

// Timeout returns the session timeout of the latest handshake; before the first, the timeout asked for.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Timeout()
}

// State returns the current state.
func (s *Session) State() connstate.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.State
}

// Servers that were emptied, or restored from a backup, disconnect clients that saw newer transactions:
// see wire's answerForgotten. The wire detects the lost data, and a new session begins.

var errForgotten = fmt.Errorf("%w: the servers lost transactions that this session has seen (emptied, or restored from a backup)", zkutil.ErrSessionLost)

// GiveUpAfter returns for how long all servers have to refuse the session before the session may be given up:
// as long as any server would keep the session.
func (o wireOwner) GiveUpAfter() time.Duration {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.LongestLifetime()
}

// OnForgotten gives up the session. See wire.owner. Soon afterwards zk.Conn reports the end of the session.
func (o wireOwner) OnForgotten(server string) {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link.failure, s.report.failure = errForgotten, errForgotten
	s.actLocked(s.core.OnSessionOver(errForgotten, s.clock.Now()))
	s.log.Log(slog.LevelWarn, "session abandoned, opening a new one; fencing tokens may restart", "server", server, "err", errForgotten)
}

// Subscribe returns a channel of the states of s as they change, the present state first, and a function to end
// the subscription. The channel is closed after Closed, or by stop. States unread by then stay in the channel.
func Subscribe[S ~int](s *Session) (states <-chan S, stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return connstate.Subscribe[S](s.life.tasksCtx, s.link.states, s.core.State, s.backgroundLocked)
}

// Health returns the present condition of the session.
func (s *Session) Health() Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := Health{
		State: s.core.State, Since: s.report.since, LastProof: s.report.lastProofLocked(), SessionTimeout: s.core.Timeout(), Err: s.report.failure,
	}
	if s.core.IsConnected && s.core.State != connstate.Closed {
		h.Server = s.report.server
	}
	return h
}

// authenticate waits for the session and presents the credentials.
func (l *link) authenticate(ctx context.Context) error {
	s := l.s
	if err := l.awaitCondition(ctx, func() bool { return s.core.IsConnected || l.hopeless != nil }); err != nil {
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
	if s.core.IsConnected {
		return nil
	}
	return l.hopeless
}

// whyNotConnected returns why no handshake succeeded.
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

func (l *link) hasNeverConnected() bool {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Epoch == 0
}

// WhyUnavailable returns why a request is still unanswered.
func (s *Session) WhyUnavailable() error {
	l := &s.link
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.gate.entry.isDue:
		return s.gate.entry.whyUnavailableLocked(s)
	case s.core.IsConnected:
		return errUnanswered
	case l.failure == nil:
		return zkutil.ErrUnavailable
	}
	return fmt.Errorf("%w: %w", zkutil.ErrUnavailable, connectionError{l.failure})
}

// hasOtherSessionThan reports whether the connection has a session other than id.
func (l *link) hasOtherSessionThan(id int64) bool {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.ID != 0 && s.core.ID != id
}

// whyDisconnectedLocked returns why the connection was just lost.
func (l *link) whyDisconnectedLocked() error {
	s := l.s
	if s.gate.entry.failure != nil { // a server that refuses a credential hangs up afterwards
		return connectionError{s.gate.entry.failure}
	}
	if err := s.wire.Line().Failure(); err != nil {
		return connectionError{err}
	}
	return errDisconnected
}
