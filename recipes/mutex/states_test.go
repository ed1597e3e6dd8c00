package mutex_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// state waits for the next state of a subscription.
func (f *fixture) state(states <-chan recipes.ConnectionState) recipes.ConnectionState {
	f.Helper()
	select {
	case state, ok := <-states:
		require.True(f, ok, "the channel is closed")
		return state
	case <-time.After(time.Hour):
		require.FailNow(f, "no state")
		return 0
	}
}

// closedAfter waits until a subscription's channel is closed, and expects no further state.
func (f *fixture) closedAfter(states <-chan recipes.ConnectionState) {
	f.Helper()
	select {
	case state, ok := <-states:
		require.False(f, ok, "another state: %v", state)
	case <-time.After(time.Hour):
		require.FailNow(f, "the channel is not closed")
	}
}

func TestSubscribe(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.troubled()
		states, stop := client.Subscribe()
		defer stop()
		require.Equal(f, recipes.Connected, f.state(states), "the current state first")
		f.srv.Disconnect(client.Conn().SessionID())
		require.Equal(f, recipes.Suspended, f.state(states))
		require.Equal(f, recipes.Reconnected, f.state(states))
		require.Equal(f, recipes.Connected, client.State(), "Reconnected is an event only")

		session := client.Conn().SessionID()
		over := f.outage()
		require.Equal(f, recipes.Suspended, f.state(states))
		late, stopLate := client.Subscribe()
		defer stopLate()
		require.Equal(f, recipes.Suspended, f.state(late), "the current state first")
		f.srv.Expire(session)
		over()
		for _, subscription := range []<-chan recipes.ConnectionState{states, late} {
			require.Equal(f, recipes.Lost, f.state(subscription))
			require.Equal(f, recipes.Reconnected, f.state(subscription))
		}
		require.Equal(f, recipes.Connected, client.State())

		stopLate()
		f.closedAfter(late)
		stopLate() // again
		require.NoError(f, client.Close())
		require.Equal(f, recipes.Closed, f.state(states))
		f.closedAfter(states)
		require.Equal(f, recipes.Closed, client.State())

		afterwards, stopAfterwards := client.Subscribe()
		require.Equal(f, recipes.Closed, f.state(afterwards))
		f.closedAfter(afterwards)
		stopAfterwards()
	})
}

// TestLostByDeadline: nobody says that the session is over, the client's own clock does.
func TestLostByDeadline(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.troubled()
		states, stop := client.Subscribe()
		defer stop()
		require.Equal(f, recipes.Connected, f.state(states))
		lease := acquire(f.T, f.mutex(client))
		over := f.outage()
		require.Equal(f, recipes.Suspended, f.state(states))
		require.Equal(f, recipes.Lost, f.state(states))
		require.Error(f, lease.Context().Err(), "leases have ended when Lost is told")
		over()
		require.Equal(f, recipes.Reconnected, f.state(states))
		require.ErrorIs(f, lease.Release(), recipes.ErrSessionLost)
	})
}

// TestSlowSubscriber never reads: the client goes on, and a Lost is not missed.
func TestSlowSubscriber(t *testing.T) {
	const cuts = 60
	inBubble(t, func(f *fixture) {
		client := f.troubled()
		states, stop := client.Subscribe()
		defer stop()
		for range cuts {
			f.cutAndReconnect(client)
		}
		f.srv.Expire(client.Conn().SessionID())
		require.NoError(f, acquire(f.T, f.mutex(client)).Release())
		require.NoError(f, client.Close())
		closed := time.Now()
		var got []recipes.ConnectionState
		for state := range states {
			got = append(got, state)
		}
		require.Less(f, time.Since(closed), 5*time.Second)
		require.Equal(f, recipes.Connected, got[0])
		f.Logf("%d states for %d cuts", len(got), cuts)
		require.Contains(f, got, recipes.Lost, "a Lost is never missed")
		require.Equal(f, recipes.Closed, got[len(got)-1])
	})
}

// TestSlowSubscriberCatchesUp: a late reader gets states that follow from one another, the Lost among them.
func TestSlowSubscriberCatchesUp(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.troubled()
		states, stop := client.Subscribe()
		defer stop()
		for range 50 {
			f.cutAndReconnect(client)
		}
		f.expireUnheard(client)
		pass(2 * time.Second)
		require.Equal(f, recipes.Connected, client.State())
		for range 50 {
			f.cutAndReconnect(client)
		}
		follows := map[recipes.ConnectionState][]recipes.ConnectionState{
			recipes.Connected:   {recipes.Suspended},
			recipes.Suspended:   {recipes.Reconnected, recipes.Lost},
			recipes.Reconnected: {recipes.Suspended},
			recipes.Lost:        {recipes.Reconnected},
		}
		last, lost := f.state(states), 0
		require.Equal(f, recipes.Connected, last)
		for reading := true; reading; {
			select {
			case state := <-states:
				require.Contains(f, follows[last], state, "after %v", last)
				if state == recipes.Lost {
					lost++
				}
				last = state
			case <-time.After(time.Second): // nothing more to come
				reading = false
			}
		}
		require.Equal(f, 1, lost)
		require.Equal(f, recipes.Reconnected, last)
	})
}

// TestSessionTimeoutIsNegotiated: the server has bounds, 1 s and 1 min here.
func TestSessionTimeoutIsNegotiated(t *testing.T) {
	inBubble(t, func(f *fixture) {
		for asked, granted := range map[time.Duration]time.Duration{
			time.Millisecond: time.Second,
			5 * time.Second:  5 * time.Second,
			time.Hour:        time.Minute,
		} {
			client := f.client(recipes.WithSessionTimeout(asked))
			require.Equal(f, granted, client.SessionTimeout(), "asked for %v", asked)
			require.NoError(f, acquire(f.T, f.mutex(client)).Release())
		}
	}, zktest.WithSessionTimeouts(time.Second, time.Minute))
}

// TestSessionIDsAreNotLogged: the password of a session follows from its id.
func TestSessionIDsAreNotLogged(t *testing.T) {
	inBubble(t, func(f *fixture) {
		var log lockedBuffer
		client := f.troubled(recipes.WithAuth("digest", []byte("user:secretpassword")),
			recipes.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		var ids []int64
		var said []string // errors count as well
		m := f.mutex(client)
		for range 3 {
			lease := acquire(f.T, m)
			ids = append(ids, client.Conn().SessionID())
			f.cutAndReconnect(client)
			f.srv.Expire(client.Conn().SessionID())
			said = append(said, f.cause(lease).Error(), lease.Release().Error())
			require.NoError(f, acquire(f.T, m).Release())
		}
		lease := acquire(f.T, m)
		ids = append(ids, client.Conn().SessionID())
		over := f.outage()
		ctx, cancel := context.WithTimeout(f.Context(), time.Second)
		defer cancel()
		_, err := m.Acquire(ctx)
		over()
		said = append(said, err.Error(), fmt.Sprintf("%v %+v %#v", lease.Path(), err, err))
		require.NoError(f, client.Close())

		text := log.String() + strings.Join(said, "\n")
		require.Contains(f, text, "lease lost", "the log works")
		require.Contains(f, text, "zk.Conn", "at debug level too")
		require.NotContains(f, text, "secretpassword")
		seen := map[int64]bool{}
		for _, id := range ids {
			require.False(f, id == 0 || seen[id], "four sessions")
			seen[id] = true
			for _, form := range []string{"%d", "%x", "%X"} {
				if strings.Contains(text, fmt.Sprintf(form, id)) || strings.Contains(text, fmt.Sprintf(form, uint64(id))) {
					require.Fail(f, "a session id is in the log or in an error") // not printed here either
				}
			}
		}
	})
}
