package zkutil

import (
	"context"
	"slices"
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

// onGreeting is called by the wire when a handshake has been answered, just before
// zk.Conn says so.
func (s *Session) onGreeting(id int64, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != 0 {
		s.timeout = timeout
		s.bind(id)
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

// onFailure is called by the wire when a dial or a handshake failed.
func (s *Session) onFailure(err error) {
	s.mu.Lock()
	s.failure = err
	s.mu.Unlock()
	s.cfg.Logger.Debug("connection attempt failed", "err", err)
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
	s.connected, s.since, s.failure = true, time.Now(), nil
	if first {
		s.enterState(Connected)
	} else {
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
	s.connected, s.since, s.trust.beat = false, time.Now(), time.Time{}
	if s.cfg.SuspendEnds {
		for hold := range s.holds {
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
	for hold := range s.holds {
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
	s.cfg.Logger.Debug("connection", "state", state.String())
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
		if s.closing {
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

// reader is one subscription.
type reader struct {
	pending []State // guarded by Session.mu
	wake    chan struct{}
}

// maxPending is when a slow reader starts to miss pairs of Suspended and Reconnected.
const maxPending = 64

// post appends a state; called under Session.mu.
func (r *reader) post(state State) {
	r.pending = append(r.pending, state)
	if n := len(r.pending); n > maxPending {
		// Only a Suspended and a Reconnected side by side cancel each other out.
		for i := n - 2; i >= 0; i-- {
			pair := r.pending[i : i+2]
			if slices.Contains(pair, Suspended) && slices.Contains(pair, Reconnected) {
				r.pending = slices.Delete(r.pending, i, i+2)
				break
			}
		}
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Subscribe returns the states of s as they change, the current one first, and a
// function that ends the subscription. The channel is closed after Closed, or by
// stop. After Close a reader that is more than 16 states behind misses the rest.
func Subscribe[S ~int](s *Session) (states <-chan S, stop func()) {
	out := make(chan S, 16)
	r := &reader{wake: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == Closed {
		out <- S(Closed)
		close(out)
		return out, func() {}
	}
	r.post(s.state)
	s.readers[r] = struct{}{}
	ctx, cancel := context.WithCancel(s.ctx)
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

// relay moves states from r to out until ctx ends; then what still fits.
func relay[S ~int](ctx context.Context, s *Session, r *reader, out chan<- S) {
	take := func() (state State, ok bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(r.pending) == 0 {
			return 0, false
		}
		state = r.pending[0]
		r.pending = r.pending[1:]
		return state, true
	}
	defer func() {
		s.mu.Lock()
		delete(s.readers, r)
		s.mu.Unlock()
	}()
	for {
		state, ok := take()
		if !ok {
			select {
			case <-r.wake:
				continue
			case <-ctx.Done():
				if state, ok = take(); !ok {
					return
				}
			}
		}
		select {
		case out <- S(state):
			if state == Closed {
				return
			}
			continue
		default:
		}
		select {
		case out <- S(state):
		case <-ctx.Done():
			return
		}
	}
}

// String returns the state's name.
func (s State) String() string {
	return [...]string{"suspended", "connected", "reconnected", "lost", "closed"}[s]
}
