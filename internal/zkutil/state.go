package zkutil

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"
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

// onGreeting is called by the wire when a handshake that began at began has been
// answered, just before zk.Conn says so. It returns the timeout by which the session has
// to be kept alive.
func (s *Session) onGreeting(id int64, timeout time.Duration, began time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch > 0 && timeout < s.timeout {
		s.log(slog.LevelWarn, "the server grants a shorter session timeout than the one before: the servers' bounds differ, or were lowered", "session_timeout", timeout, "before", s.timeout)
	}
	s.timeout = timeout
	if s.least == 0 || timeout < s.least {
		s.least = timeout
	}
	if id != s.id {
		s.created = timeout
	}
	s.bind(id)
	s.trust.lostAt, s.trust.ceiling = time.Time{}, time.Time{}
	s.shortenLocked(began.Add(s.horizonLocked())) // a server may grant the same session less than the one before
	return s.lifetimeLocked()
}

// onLostGreeting is called by the wire when a handshake that began at began has failed after
// the session was named to the server. That may have set the session's timeout to what it
// grants, which can be as little as any server has granted before.
func (s *Session) onLostGreeting(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.least > 0 && s.least < s.lifetimeLocked() {
		s.trust.lostAt, s.trust.ceiling = began, began.Add(s.least*2/3)
		s.shortenLocked(s.trust.ceiling)
	}
}

// bind makes id the session, and ends what belonged to another one.
func (s *Session) bind(id int64) {
	if id == s.id {
		return
	}
	if s.id != 0 {
		s.lose()
	}
	s.id, s.trust = id, trust{}
}

// onFailure is called by the wire when a dial or a handshake failed; hopeless: as it will
// at every server, however often it is repeated.
func (s *Session) onFailure(err error, hopeless bool) {
	s.mu.Lock()
	s.failure = err
	if hopeless && s.hopeless == nil {
		s.hopeless = err
		s.announce()
	}
	s.mu.Unlock()
	s.log(slog.LevelDebug, "connection attempt failed", "err", err)
}

// onEvent is zk.Conn's event callback: it runs inside zk.Conn's locks, so it must
// neither block nor call zk.Conn's requests.
func (s *Session) onEvent(event zk.Event) {
	switch {
	case event.Type != zk.EventSession:
		s.fire(event.Path, event.Type)
	case event.State == zk.StateHasSession:
		s.onConnected()
	case event.State == zk.StateDisconnected:
		s.onDisconnected()
	case event.State == zk.StateExpired:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lose()
		s.announce()
	}
}

func (s *Session) onConnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wire == nil { // no wire has told us the id
		s.bind(s.conn.SessionID())
	}
	first := s.epoch == 0
	s.epoch++
	s.connected, s.since, s.failure = true, s.clock.now(), nil
	switch {
	case first:
		s.enterState(Connected)
	case s.state != Connected: // an adopted connection may tell twice
		s.enterState(Reconnected)
	}
	s.announce()
}

func (s *Session) onDisconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.connected {
		return
	}
	s.connected, s.since = false, s.clock.now()
	s.trust.beats, s.trust.beaten = nil, time.Time{} // an overdue one is sent once we are back
	if s.cfg.SuspendEnds {
		for _, hold := range s.holds {
			hold.endLocked(ErrSuspended)
		}
	}
	if s.state != Lost {
		s.enterState(Suspended)
	}
	s.announce()
}

// lose ends the holds of a session that is over.
func (s *Session) lose() {
	s.id = 0
	for _, hold := range s.holds {
		hold.endLocked(ErrSessionLost)
	}
	if s.state != Lost && s.epoch > 0 {
		s.enterState(Lost)
	}
}

// enterState publishes a state to the readers. Closed is final.
func (s *Session) enterState(state State) {
	if s.state == Closed {
		return
	}
	s.state = state
	if state == Reconnected {
		s.state = Connected
	}
	s.log(slog.LevelDebug, "connection", "state", state.String())
	for r := range s.readers {
		r.post(state)
	}
}

// announce wakes whoever waits for a change of the session, the keeper included.
func (s *Session) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
	s.wakeKeeper()
}

// await blocks until condition, which is called under s.mu, holds.
func (s *Session) await(ctx context.Context, condition func() bool) error {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return ErrClosed
		}
		met, changed := condition(), s.changed
		s.mu.Unlock()
		if met {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return interrupted(ctx, nil)
		}
	}
}

// drain waits until condition, which is called under s.mu, holds or limit is over.
func (s *Session) drain(limit time.Duration, condition func() bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		s.mu.Lock()
		met, changed := condition(), s.changed
		s.mu.Unlock()
		if met {
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
