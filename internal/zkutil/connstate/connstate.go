package connstate

import (
	"context"
	"math"
	"slices"
	"sync"
)

// State is the state of a session's connection, numbered as in package recipes.
type State int

// The states. Reconnected is only published to subscribers. The state is then Connected.
const (
	Suspended State = iota
	Connected
	Reconnected
	Lost
	Closed
)

// String returns the state's name.
func (s State) String() string {
	return [...]string{"suspended", "connected", "reconnected", "lost", "closed"}[s]
}

// Feed passes states to subscribers, in order, and never blocks. All methods may be called concurrently.
type Feed struct {
	mu      sync.Mutex // protects the fields below, and those of the readers
	readers map[*reader]struct{}
}

// NewFeed returns a Feed without subscribers.
func NewFeed() *Feed { return &Feed{readers: map[*reader]struct{}{}} }

// Post passes a state to all subscribers.
func (f *Feed) Post(state State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.readers {
		r.post(state)
	}
}

// Subscribers returns the number of open subscriptions.
func (f *Feed) Subscribers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.readers)
}

// Subscribe returns a channel of the states posted from now on, now first, and a function to end the subscription. The
// channel is closed after Closed, by stop, when ctx ends, and if start reports false instead of starting the goroutine of
// the subscription. States unread by then stay in the channel.
func Subscribe[S ~int](ctx context.Context, f *Feed, now State, start func(task func(context.Context)) bool) (states <-chan S, stop func()) {
	out := make(chan S, maxUnread)
	if now == Closed {
		out <- S(Closed)
		close(out)
		return out, func() {}
	}
	r := &reader{wake: make(chan struct{}, 1)}
	f.mu.Lock()
	r.post(now)
	f.readers[r] = struct{}{}
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	relayUntilEnd := func(context.Context) {
		defer close(ended)
		defer close(out)
		relay(ctx, f, r, out)
	}
	if !start(relayUntilEnd) {
		cancel()
		relayUntilEnd(ctx) // which returns at once
	}
	return out, func() {
		cancel()
		<-ended
	}
}

// reader is one subscription.
type reader struct {
	pending []State
	wake    chan struct{}
}

// While more than maxPending states wait for a slow reader, besides those in the channel, the reader misses pairs of
// Suspended and Reconnected. While more than maxLosses wait, because a Lost is between most pairs, the reader misses
// the oldest losses.
const (
	maxPending = 64
	maxLosses  = 1024
)

// post appends a state for the reader.
func (r *reader) post(state State) {
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

// maxUnread is how many states the channel of a subscription holds.
const maxUnread = 16

// relay moves states from r to out until ctx ends.
func relay[S ~int](ctx context.Context, f *Feed, r *reader, out chan S) {
	take := func(n int) (states []State) {
		f.mu.Lock()
		defer f.mu.Unlock()
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
	f.mu.Lock()
	delete(f.readers, r)
	f.mu.Unlock()
	for _, state := range take(math.MaxInt) {
		unread = append(unread, S(state))
	}
	leaveUnread(out, unread)
}

// leaveUnread puts the unread states into out, except those that a reader may miss. The order is right even while the
// subscriber reads, because no other goroutine sends.
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
