package session_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// nextState waits for the next state of a subscription.
func nextState(f *locks.Fixture, states <-chan recipes.ConnectionState) recipes.ConnectionState {
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

// requireClosedAfter waits until a subscription's channel is closed, and expects no further state.
func requireClosedAfter(f *locks.Fixture, states <-chan recipes.ConnectionState) {
	f.Helper()
	select {
	case state, ok := <-states:
		require.False(f, ok, "another state: %v", state)
	case <-time.After(time.Hour):
		require.FailNow(f, "the channel is not closed")
	}
}

func TestSubscribe(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Troubled()
		states, stop := client.Subscribe()
		defer stop()
		require.Equal(f, recipes.Connected, nextState(f, states), "the current state first")
		f.Srv.Disconnect(client.Conn().SessionID())
		require.Equal(f, recipes.Suspended, nextState(f, states))
		require.Equal(f, recipes.Reconnected, nextState(f, states))
		require.Equal(f, recipes.Connected, client.State(), "Reconnected is an event only")

		session := client.Conn().SessionID()
		over := f.Outage()
		require.Equal(f, recipes.Suspended, nextState(f, states))
		late, stopLate := client.Subscribe()
		defer stopLate()
		require.Equal(f, recipes.Suspended, nextState(f, late), "the current state first")
		f.Srv.Expire(session)
		over()
		for _, subscription := range []<-chan recipes.ConnectionState{states, late} {
			require.Equal(f, recipes.Lost, nextState(f, subscription))
			require.Equal(f, recipes.Reconnected, nextState(f, subscription))
		}
		require.Equal(f, recipes.Connected, client.State())

		stopLate()
		requireClosedAfter(f, late)
		stopLate() // again
		require.NoError(f, client.Close())
		require.Equal(f, recipes.Closed, nextState(f, states))
		requireClosedAfter(f, states)
		require.Equal(f, recipes.Closed, client.State())

		afterwards, stopAfterwards := client.Subscribe()
		require.Equal(f, recipes.Closed, nextState(f, afterwards))
		requireClosedAfter(f, afterwards)
		stopAfterwards()
	})
}

// TestLostByDeadline requires a Lost by the client's own clock, without a report of a server.
func TestLostByDeadline(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Troubled()
		states, stop := client.Subscribe()
		defer stop()
		require.Equal(f, recipes.Connected, nextState(f, states))
		lease := bubble.Acquire(f.T, f.Mutex(client).Acquire)
		over := f.Outage()
		require.Equal(f, recipes.Suspended, nextState(f, states))
		require.Equal(f, recipes.Lost, nextState(f, states))
		require.Error(f, lease.Context().Err(), "leases have ended when Lost is told")
		over()
		require.Equal(f, recipes.Reconnected, nextState(f, states))
		require.ErrorIs(f, lease.Release(), recipes.ErrSessionLost)
	})
}

// TestSlowSubscriberCatchesUp requires that a late reader gets states that follow from one another, including the
// Lost.
func TestSlowSubscriberCatchesUp(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Troubled()
		states, stop := client.Subscribe()
		defer stop()
		for range 50 {
			f.CutAndReconnect(client)
		}
		f.ExpireUnheard(client)
		bubble.Pass(2 * time.Second)
		require.Equal(f, recipes.Connected, client.State())
		for range 50 {
			f.CutAndReconnect(client)
		}
		follows := map[recipes.ConnectionState][]recipes.ConnectionState{
			recipes.Connected:   {recipes.Suspended},
			recipes.Suspended:   {recipes.Reconnected, recipes.Lost},
			recipes.Reconnected: {recipes.Suspended},
			recipes.Lost:        {recipes.Reconnected},
		}
		last, lost := nextState(f, states), 0
		require.Equal(f, recipes.Connected, last)
		for reading := true; reading; {
			select {
			case state := <-states:
				require.Contains(f, follows[last], state, "after %v", last)
				if state == recipes.Lost {
					lost++
				}
				last = state
			case <-time.After(time.Second): // no more states
				reading = false
			}
		}
		require.Equal(f, 1, lost)
		require.Equal(f, recipes.Reconnected, last)
	})
}

// TestSessionTimeoutIsNegotiated uses a server with bounds of 1 s and 1 min.
func TestSessionTimeoutIsNegotiated(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		for asked, granted := range map[time.Duration]time.Duration{
			time.Millisecond: time.Second,
			5 * time.Second:  5 * time.Second,
			time.Hour:        time.Minute,
		} {
			client := f.Client(recipes.WithSessionTimeout(asked))
			require.Equal(f, granted, client.SessionTimeout(), "asked for %v", asked)
			require.NoError(f, bubble.Acquire(f.T, f.Mutex(client).Acquire).Release())
		}
	}, zktest.WithSessionTimeouts(time.Second, time.Minute))
}

// TestSessionIDsAreNotLogged matters because the password of a session follows from its id.
func TestSessionIDsAreNotLogged(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		var log testkit.Log
		client := f.Troubled(recipes.WithAuth("digest", []byte("user:secretpassword")),
			recipes.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		var ids []int64
		var said []string // errors count as well
		m := f.Mutex(client)
		for range 3 {
			lease := bubble.Acquire(f.T, m.Acquire)
			ids = append(ids, client.Conn().SessionID())
			f.CutAndReconnect(client)
			f.Srv.Expire(client.Conn().SessionID())
			said = append(said, f.Cause(lease).Error(), lease.Release().Error())
			require.NoError(f, bubble.Acquire(f.T, m.Acquire).Release())
		}
		lease := bubble.Acquire(f.T, m.Acquire)
		ids = append(ids, client.Conn().SessionID())
		over := f.Outage()
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
