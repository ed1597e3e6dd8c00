package session

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// State is the state of a session's connection, numbered as in package recipes.
type State int

// The states. Reconnected is only ever an event: the state is Connected then.
const (
	Suspended State = iota
	Connected
	Reconnected
	Lost
	Closed
)

// onHandshake is wire.Owner's OnHandshake.
func (s *Session) onHandshake(id int64, timeout time.Duration, beganAt time.Time) (lifetime time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link.epoch > 0 && timeout < s.live.timeout {
		s.Log(slog.LevelWarn, "the server grants a shorter session timeout than the one before: the servers' bounds differ, or were lowered", "session_timeout", timeout, "before", s.live.timeout)
	}
	if (s.link.epoch == 0 || timeout != s.live.timeout) && timeout <= s.cfg.SessionTimeout/2 {
		s.Log(slog.LevelWarn, "the server grants a session timeout far below the one asked for", "session_timeout", timeout, "asked", s.cfg.SessionTimeout)
	}
	s.live.timeout = timeout
	if s.live.leastTimeout == 0 || timeout < s.live.leastTimeout {
		s.live.leastTimeout = timeout
	}
	if id != s.link.id {
		s.live.createdTimeout = timeout
	}
	s.setSessionLocked(id)
	s.live.trust.lostHandshakeAt, s.live.trust.limitAfterLostHandshake = time.Time{}, time.Time{}
	s.shortenTrustLocked(beganAt.Add(s.live.horizon())) // a server may grant the same session less than the one before
	return s.live.lifetime()
}

// onLostHandshake is wire.Owner's OnLostHandshake. The server may have set the session's timeout to
// what it grants, which can be as little as any server has granted before.
func (s *Session) onLostHandshake(beganAt time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live.leastTimeout > 0 && s.live.leastTimeout < s.live.lifetime() {
		s.live.trust.lostHandshakeAt, s.live.trust.limitAfterLostHandshake = beganAt, beganAt.Add(zkutil.OwnHorizon(s.live.leastTimeout))
		s.shortenTrustLocked(s.live.trust.limitAfterLostHandshake)
	}
}

// setSessionLocked makes id the session, and ends what belonged to another one.
func (s *Session) setSessionLocked(id int64) {
	if id == s.link.id {
		return
	}
	if s.link.id != 0 {
		s.endSessionLocked()
	}
	now := s.clock.now()
	s.link.id, s.live.trust = id, trust{lastAuditAt: now, lastReadAt: now}
}

// onFailure is wire.Owner's OnFailure.
func (s *Session) onFailure(err error, isHopeless bool) {
	s.mu.Lock()
	s.link.failure, s.shown.failure = err, err
	if isHopeless && s.link.hopeless == nil {
		s.link.hopeless = err
		s.announceLocked()
	}
	s.mu.Unlock()
	s.Log(slog.LevelDebug, "connection attempt failed", "err", err)
}

// onEvent is zk.Conn's event callback. It must neither block nor call zk.Conn's requests, because it
// runs inside zk.Conn's locks.
func (s *Session) onEvent(event zk.Event) {
	switch {
	case event.Type != zk.EventSession:
		s.fireWatches(event.Path, event.Type)
	case event.State == zk.StateHasSession:
		s.onConnected(event.Server)
	case event.State == zk.StateDisconnected:
		s.onDisconnected()
	case event.State == zk.StateExpired:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.endSessionLocked()
		s.announceLocked()
	}
}

func (s *Session) onConnected(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wire == nil { // nothing has called onHandshake
		s.setSessionLocked(s.conn.SessionID())
	} else {
		server = s.wire.Line().Address
		s.loseWatchesLocked()
	}
	s.shown.server = server
	isFirst := s.link.epoch == 0
	s.link.epoch++
	s.live.hasConnected = true
	s.link.isConnected, s.link.changedAt, s.link.failure = true, s.clock.now(), nil
	switch {
	case isFirst:
		s.enterStateLocked(Connected, nil)
	case s.state != Connected: // an adopted connection may report it twice
		s.enterStateLocked(Reconnected, nil)
	}
	s.announceLocked()
}

func (s *Session) onDisconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.link.isConnected {
		return
	}
	s.link.isConnected, s.link.changedAt = false, s.clock.now()
	s.live.trust.beatsSentAt, s.live.trust.lastBeatAt = nil, time.Time{} // one that is overdue is sent on the next connection
	s.live.trust.readsSentAt = time.Time{}
	if s.cfg.SuspendEnds {
		s.endHoldsLocked(zkutil.ErrSuspended)
	}
	why := s.whyDisconnectedLocked()
	s.shown.failure = why
	if s.state != Lost {
		s.enterStateLocked(Suspended, why)
	}
	s.announceLocked()
}

// endSessionLocked ends the holds of a session that has expired.
func (s *Session) endSessionLocked() {
	s.link.id = 0
	s.budget.endSession()
	s.endHoldsLocked(zkutil.ErrSessionLost)
	if s.state != Lost && s.link.epoch > 0 {
		s.enterStateLocked(Lost, errExpired)
	}
}

// enterStateLocked publishes a state to the readers, the log and the traces. why is the reason of a Suspended or
// Lost. Closed is final.
func (s *Session) enterStateLocked(state State, why error) {
	if s.state == Closed {
		return
	}
	before := s.state
	s.state = state
	if state == Reconnected {
		s.state = Connected
	}
	s.showStateLocked(before, state, why)
	for r := range s.readers {
		r.postLocked(state)
	}
}

// announceLocked wakes those who wait for a change of the session, and the keeper.
func (s *Session) announceLocked() {
	s.changes.AnnounceLocked()
	s.wakeKeeper()
}

// Snapshot is the state of a session at a moment.
type Snapshot struct {
	Epoch     uint64          // counts handshakes
	ID        int64           // of the session; 0: expired, and no other yet
	IsClosing bool            // Close has begun
	Changed   <-chan struct{} // closed when any of that, or the state of the connection, has changed
}

// Snapshot returns the present state of the session.
func (s *Session) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Snapshot{s.link.epoch, s.link.id, s.life.isClosingLocked(), s.changes.ChangedLocked()}
}

// IsConnected reports whether the session is connected to a server.
func (s *Session) IsConnected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link.isConnected
}

// AwaitConnected waits until the session is connected to a server.
func (s *Session) AwaitConnected(ctx context.Context) error {
	return s.awaitCondition(ctx, func() bool { return s.link.isConnected })
}

// awaitCondition blocks until condition is true. condition is called under s.mu.
func (s *Session) awaitCondition(ctx context.Context, condition func() bool) error {
	for {
		s.mu.Lock()
		if s.life.isClosingLocked() {
			s.mu.Unlock()
			return zkutil.ErrClosed
		}
		isMet, changed := condition(), s.changes.ChangedLocked()
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

// awaitConditionWithin blocks until condition is true or limit has passed. condition is called under
// s.mu.
func (s *Session) awaitConditionWithin(limit time.Duration, condition func() bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		s.mu.Lock()
		isMet, changed := condition(), s.changes.ChangedLocked()
		s.mu.Unlock()
		if isMet {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		}
	}
}

// State returns the current state.
func (s *Session) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// String returns the state's name.
func (s State) String() string {
	return [...]string{"suspended", "connected", "reconnected", "lost", "closed"}[s]
}
