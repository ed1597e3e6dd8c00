package zkutil

import (
	"context"
	"slices"
)

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
