package connstate

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// A reader that never reads costs a bounded memory, and finds the latest Lost and the present state.
func TestDropLosses(t *testing.T) {
	const c, s, r, l, x = Connected, Suspended, Reconnected, Lost, Closed
	for _, test := range []struct {
		limit    int
		in, want []State
	}{
		{0, nil, nil},
		{0, []State{c}, []State{c}},
		{4, []State{c, s, l, r, s, l, r}, []State{c, s, l, r}},
		{7, []State{c, s, l, r, s, l, r}, []State{c, s, l, r, s, l, r}},
		{6, []State{c, s, l, r, s, l, r}, []State{c, s, l, r}},
		{0, []State{c, s, l, r, s, l, r}, []State{c, s, l, r}}, // never the latest Lost
		{0, []State{c, s, l, r, s, l, r, s, r}, []State{c, s, l, r, s, r}},
		{0, []State{c, s, l, r, s, l}, []State{c, s, l}},
		{0, []State{c, l, r, s, l, x}, []State{c, s, l, x}},
		{0, []State{s, l, x}, []State{s, l, x}},
		{0, []State{r, s, l, r, l}, []State{r, l}},
	} {
		require.Equal(t, test.want, dropLosses(slices.Clone(test.in), test.limit), "%d of %v", test.limit, test.in)
	}
	reader := &reader{wake: make(chan struct{}, 1)}
	for n := range 10_000 {
		for _, state := range []State{s, l, r} {
			reader.post(state)
		}
		if n < maxLosses/3 {
			require.Len(t, reader.pending, 3*(n+1), "none is missed yet")
		}
	}
	require.LessOrEqual(t, len(reader.pending), maxLosses)
	require.Equal(t, []State{s, l, r}, reader.pending[len(reader.pending)-3:])
}

func TestCompact(t *testing.T) {
	const c, s, r, l, x = Connected, Suspended, Reconnected, Lost, Closed
	for _, test := range []struct {
		limit    int
		in, want []State
	}{
		{0, nil, nil},
		{3, []State{c, s, r}, []State{c, s, r}},
		{2, []State{c, s, r}, []State{c}},
		{0, []State{c, s, r}, []State{c}},
		{3, []State{c, s, r, s, r}, []State{c, s, r}}, // no more than needed
		{1, []State{c, s, r, s, r, s}, []State{c, s}},
		{1, []State{c, s, l, r, s, l, r}, []State{c, s, l, r, s, l, r}}, // never a Lost
		{1, []State{c, s, l, r, s, r, s, l, r}, []State{c, s, l, r, s, l, r}},
		{1, []State{c, s, r, x}, []State{c, x}},
	} {
		require.Equal(t, test.want, dropPairs(slices.Clone(test.in), test.limit), "%v", test.in)
	}
}

// A channel takes as many states as it has room for, the latest. Nothing blocks.
func TestStatesBeyondTheRoomOfTheChannel(t *testing.T) {
	for _, n := range []int{maxUnread - 1, maxUnread, maxUnread + 1, 2*maxUnread + 1} {
		for waiting := range maxUnread + 1 {
			testkit.Bubble(t, func(t *testing.T) { // which fails if anything blocks
				all := make([]State, 0, n)
				for i := range n {
					all = append(all, []State{Lost, Suspended, Reconnected, Lost}[i%4])
				}
				all = append(all, Closed)
				out := make(chan State, maxUnread)
				first := min(waiting, n)
				for _, state := range all[:first] {
					out <- state
				}
				leaveUnread(out, slices.Clone(all[first:]))
				close(out)
				var got []State
				for state := range out {
					got = append(got, state)
				}
				want := dropPairs(slices.Clone(all), maxUnread)
				require.Equal(t, want[max(0, len(want)-maxUnread):], got)
			})
		}
	}
}

// A subscription that can't start, because the session is about to close, has the present state alone, and leaves no reader.
func TestSubscriptionThatCantStart(t *testing.T) {
	f := NewFeed()
	states, stop := Subscribe[State](t.Context(), f, Suspended, func(func(context.Context)) bool { return false })
	require.Equal(t, Suspended, <-states)
	_, isOpen := <-states
	require.False(t, isOpen)
	require.Zero(t, f.Subscribers())
	stop()
	f.Post(Lost)

	states, stop = Subscribe[State](t.Context(), f, Closed, nil)
	require.Equal(t, Closed, <-states)
	_, isOpen = <-states
	require.False(t, isOpen)
	stop()
}

// A subscription ends with its context, with stop and with Closed. Unread states stay in the channel.
func TestEndsOfASubscription(t *testing.T) {
	for name, end := range map[string]func(f *Feed, cancel, stop func()){
		"context": func(_ *Feed, cancel, _ func()) { cancel() },
		"stop":    func(_ *Feed, _, stop func()) { stop() },
	} {
		testkit.Bubble(t, func(t *testing.T) {
			f := NewFeed()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			states, stop := Subscribe[State](ctx, f, Connected, func(task func(context.Context)) bool { go task(ctx); return true })
			f.Post(Suspended)
			require.Equal(t, 1, f.Subscribers())
			end(f, cancel, stop)
			synctest.Wait()
			require.Zero(t, f.Subscribers(), name)
			f.Post(Reconnected)
			var got []State
			for state := range states {
				got = append(got, state)
			}
			require.Equal(t, []State{Connected, Suspended}, got, name)
			stop()
		})
	}
}

// A subscription whose channel is full ends as well, with as many states as there is room for.
func TestEndOfAFullSubscription(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		f := NewFeed()
		states, stop := Subscribe[State](t.Context(), f, Connected, func(task func(context.Context)) bool { go task(t.Context()); return true })
		for range 2 * maxUnread {
			f.Post(Lost)
			f.Post(Reconnected)
		}
		synctest.Wait()
		require.Len(t, states, maxUnread)
		stop()
		require.Zero(t, f.Subscribers())
		n := 0
		for range states {
			n++
		}
		require.LessOrEqual(t, n, maxUnread)
		require.Positive(t, n)
	})
}
