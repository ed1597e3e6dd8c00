package mutex_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// nextState waits for the next state of a subscription.
func nextState(t *testing.T, states <-chan recipes.ConnectionState) recipes.ConnectionState {
	t.Helper()
	select {
	case state, ok := <-states:
		require.True(t, ok, "the channel is closed")
		return state
	case <-testContext(t).Done():
		require.Fail(t, "no state")
		return 0
	}
}

// closedAfter waits until a subscription's channel is closed, and expects no further state.
func closedAfter(t *testing.T, states <-chan recipes.ConnectionState) {
	t.Helper()
	select {
	case state, ok := <-states:
		require.False(t, ok, "another state: %v", state)
	case <-testContext(t).Done():
		require.Fail(t, "the channel is not closed")
	}
}

func TestSubscribe(t *testing.T) {
	client, proxy := proxiedFor(t, calm)
	states, stop := client.Subscribe()
	defer stop()
	require.Equal(t, recipes.Connected, nextState(t, states), "the current state first")
	proxy.Cut()
	require.Equal(t, recipes.Suspended, nextState(t, states))
	require.Equal(t, recipes.Reconnected, nextState(t, states))
	require.Equal(t, recipes.Connected, client.State(), "Reconnected is an event only")

	over := outage(t, client, proxy)
	require.Equal(t, recipes.Suspended, nextState(t, states))
	late, stopLate := client.Subscribe()
	defer stopLate()
	require.Equal(t, recipes.Suspended, nextState(t, late), "the current state first")
	require.NoError(t, zkadmin.Expire(testContext(t), ensemble.Shared(t).Server(0), client.Conn().SessionID()))
	over()
	for _, subscription := range []<-chan recipes.ConnectionState{states, late} {
		require.Equal(t, recipes.Lost, nextState(t, subscription))
		require.Equal(t, recipes.Reconnected, nextState(t, subscription))
	}
	require.Equal(t, recipes.Connected, client.State())

	stopLate()
	closedAfter(t, late)
	stopLate() // again
	require.NoError(t, client.Close())
	require.Equal(t, recipes.Closed, nextState(t, states))
	closedAfter(t, states)
	require.Equal(t, recipes.Closed, client.State())

	afterwards, stopAfterwards := client.Subscribe()
	require.Equal(t, recipes.Closed, nextState(t, afterwards))
	closedAfter(t, afterwards)
	stopAfterwards()
}

// TestLostByDeadline: nobody says that the session is over, the client's own clock does.
func TestLostByDeadline(t *testing.T) {
	const timeout = 3 * time.Second
	client, proxy := proxiedFor(t, timeout)
	states, stop := client.Subscribe()
	defer stop()
	require.Equal(t, recipes.Connected, nextState(t, states))
	lease := acquire(t, newMutex(t, client, lockPath(t)))
	proxy.Refuse(true)
	proxy.Cut()
	require.Equal(t, recipes.Suspended, nextState(t, states))
	require.Equal(t, recipes.Lost, nextState(t, states))
	require.Error(t, lease.Context().Err(), "leases have ended when Lost is told")
	proxy.Refuse(false)
	require.Equal(t, recipes.Reconnected, nextState(t, states))
	require.ErrorIs(t, lease.Release(), recipes.ErrSessionLost)
}

// TestSlowSubscriber never reads: the client goes on, and a Lost is not missed.
func TestSlowSubscriber(t *testing.T) {
	const cuts = 60
	client, proxy := proxiedFor(t, calm)
	states, stop := client.Subscribe()
	defer stop()
	for range cuts {
		cutAndReconnect(t, client, proxy)
	}
	expire(t, client)
	require.NoError(t, acquire(t, newMutex(t, client, lockPath(t))).Release())
	require.NoError(t, client.Close())
	closedInTime := time.Now()
	var got []recipes.ConnectionState
	for state := range states {
		got = append(got, state)
	}
	require.Less(t, time.Since(closedInTime), 5*time.Second)
	require.Equal(t, recipes.Connected, got[0])
	t.Logf("%d states for %d cuts", len(got), cuts)
	require.Contains(t, got, recipes.Lost, "a Lost is never missed")
	require.Equal(t, recipes.Closed, got[len(got)-1])
}

// TestSlowSubscriberCatchesUp: whoever reads late gets states that follow from one
// another, the Lost among them.
func TestSlowSubscriberCatchesUp(t *testing.T) {
	client, proxy := proxiedFor(t, calm)
	states, stop := client.Subscribe()
	defer stop()
	for range 50 {
		cutAndReconnect(t, client, proxy)
	}
	over := outage(t, client, proxy)
	require.NoError(t, zkadmin.Expire(testContext(t), ensemble.Shared(t).Server(0), client.Conn().SessionID()))
	over()
	reached(t, client, recipes.Connected)
	for range 50 {
		cutAndReconnect(t, client, proxy)
	}
	follows := map[recipes.ConnectionState][]recipes.ConnectionState{
		recipes.Connected:   {recipes.Suspended},
		recipes.Suspended:   {recipes.Reconnected, recipes.Lost},
		recipes.Reconnected: {recipes.Suspended},
		recipes.Lost:        {recipes.Reconnected},
	}
	last, lost := nextState(t, states), 0
	require.Equal(t, recipes.Connected, last)
	for reading := true; reading; {
		select {
		case state := <-states:
			require.Contains(t, follows[last], state, "after %v", last)
			if state == recipes.Lost {
				lost++
			}
			last = state
		case <-time.After(time.Second): // nothing more to come
			reading = false
		}
	}
	require.Equal(t, 1, lost)
	require.Equal(t, recipes.Reconnected, last)
}

// TestSessionTimeoutIsNegotiated: the server has bounds, 1 s and 1 min here.
func TestSessionTimeoutIsNegotiated(t *testing.T) {
	for asked, granted := range map[time.Duration]time.Duration{
		time.Millisecond: time.Second,
		5 * time.Second:  5 * time.Second,
		time.Hour:        time.Minute,
	} {
		client := direct(t, recipes.WithSessionTimeout(asked))
		require.Equal(t, granted, client.SessionTimeout(), "asked for %v", asked)
		require.NoError(t, acquire(t, newMutex(t, client, lockPath(t))).Release())
	}
}

// TestSessionIDsAreNotLogged: the password of a session follows from its id.
func TestSessionIDsAreNotLogged(t *testing.T) {
	var log lockedBuffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	proxy := faultproxy.New(t, ensemble.Shared(t).Server(0))
	client, err := recipes.Connect(testContext(t), []string{proxy.Addr()}, recipes.WithSessionTimeout(sessionTimeout),
		recipes.WithLogger(logger), recipes.WithAuth("digest", []byte("user:secretpassword")))
	require.NoError(t, err)
	var ids []int64
	var said []string // errors count as well
	path := lockPath(t)
	m := newMutex(t, client, path)
	for range 3 {
		lease := acquire(t, m)
		ids = append(ids, client.Conn().SessionID())
		cutAndReconnect(t, client, proxy)
		expire(t, client)
		said = append(said, ended(t, lease).Error(), lease.Release().Error())
		require.NoError(t, acquire(t, m).Release())
	}
	lease := acquire(t, m)
	ids = append(ids, client.Conn().SessionID())
	over := outage(t, client, proxy)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = m.Acquire(ctx)
	said = append(said, err.Error())
	over()
	said = append(said, fmt.Sprintf("%v %+v %#v", lease.Path(), err, err))
	require.NoError(t, client.Close())

	text := log.String() + strings.Join(said, "\n")
	require.Contains(t, text, "hold lost", "the log works")
	require.Contains(t, text, "zk.Conn", "at debug level too")
	require.NotContains(t, text, "secretpassword")
	seen := map[int64]bool{}
	for _, id := range ids {
		require.False(t, id == 0 || seen[id], "four sessions")
		seen[id] = true
		for _, form := range []string{"%d", "%x", "%X"} {
			for _, text := range []string{log.String(), strings.Join(said, "\n")} {
				if strings.Contains(text, fmt.Sprintf(form, id)) || strings.Contains(text, fmt.Sprintf(form, uint64(id))) {
					require.Fail(t, "a session id is in the log or in an error") // not printed here either
				}
			}
		}
	}
}
