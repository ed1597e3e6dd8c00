package session

import (
	"context"
	"math"
	"slices"
)

// reader is one subscription.
type reader struct {
	pending []State // guarded by Session.mu
	wake    chan struct{}
}

// maxPending is how many states wait for a slow reader before it misses pairs of Suspended and
// Reconnected.
const maxPending = 64

// postLocked appends a state for the reader.
func (r *reader) postLocked(state State) {
	r.pending = dropPairs(append(r.pending, state), maxPending)
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// dropPairs removes pairs of a Suspended and the Reconnected right after it from states, the latest
// first, until no more than limit are left.
func dropPairs[S ~int](states []S, limit int) []S {
	for i := len(states) - 2; i >= 0 && len(states) > limit; i-- {
		if states[i] == S(Suspended) && states[i+1] == S(Reconnected) {
			states = slices.Delete(states, i, i+2)
			i = min(i, len(states)-1) // the states before and after may be a pair now
		}
	}
	return states
}

// Subscribe returns a channel of the states of s as they change, the present one first, and a
// function that ends the subscription. The channel is closed after Closed, or by stop. States that
// have not been read by then stay in the channel.
func Subscribe[S ~int](s *Session) (states <-chan S, stop func()) {
	out := make(chan S, maxUnread)
	r := &reader{wake: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == Closed {
		out <- S(Closed)
		close(out)
		return out, func() {}
	}
	r.postLocked(s.state)
	s.readers[r] = struct{}{}
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
	delete(s.readers, r)
	s.mu.Unlock()
	for _, state := range take(math.MaxInt) {
		unread = append(unread, S(state))
	}
	leaveUnread(out, unread)
}

// leaveUnread puts the states that nobody has read yet into out, without the pairs that may be missed
// and, after more expiries than the channel has room for, without the oldest. The order is right
// even while somebody reads, because nobody else sends.
func leaveUnread[S ~int](out chan S, unread []S) {
	var waiting []S
	for len(out) > 0 {
		select {
		case state := <-out:
			waiting = append(waiting, state)
		default:
		}
	}
	unread = dropPairs(append(waiting, unread...), maxUnread)
	for _, state := range unread[max(0, len(unread)-maxUnread):] {
		out <- state
	}
}
