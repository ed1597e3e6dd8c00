package session_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// drained returns what a subscription has to offer now.
func drained(states <-chan session.State) (all []session.State) {
	for {
		synctest.Wait()
		select {
		case state, ok := <-states:
			if !ok {
				return all
			}
			all = append(all, state)
		default:
			return all
		}
	}
}

func TestStatesOfAnOutage(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		const timeout = 30 * time.Second
		s := fixture.Connect(t, srv.Config(timeout))
		states, stop := session.Subscribe[session.State](s)
		defer stop()
		require.Equal(t, []session.State{session.Connected}, drained(states))

		srv.Disconnect()
		fixture.Pass(100 * time.Millisecond)
		require.Equal(t, []session.State{session.Suspended, session.Reconnected}, drained(states))
		require.Equal(t, session.Connected, s.State(), "Reconnected is an event only")

		srv.Stop(srv.A)
		require.Equal(t, []session.State{session.Suspended}, drained(states))
		srv.Restart(srv.A)
		fixture.Pass(2 * time.Second)
		require.Equal(t, []session.State{session.Reconnected}, drained(states))
		require.NoError(t, s.Close())
		require.Equal(t, []session.State{session.Closed}, drained(states))
		_, open := <-states
		require.False(t, open)
	})
}

// Nobody says Lost but our own clock; the hold has ended by then. The session turns
// out to be alive: Reconnected follows.
func TestLostByTheLocalDeadline(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		const timeout = 30 * time.Second
		s := fixture.Connect(t, srv.Config(timeout))
		id := fixture.SessionID(s)
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		states, stop := session.Subscribe[session.State](s)
		defer stop()
		srv.Stop(srv.A)
		require.Equal(t, []session.State{session.Connected, session.Suspended}, drained(states))
		deadline := e.TrustedUntil()
		require.Equal(t, session.Lost, <-states)
		require.Equal(t, deadline, time.Now())
		require.Error(t, e.Context().Err(), "the hold ends before Lost is told")
		require.Equal(t, session.Lost, s.State())
		srv.Restart(srv.A)
		require.Equal(t, session.Reconnected, <-states)
		require.Equal(t, id, fixture.SessionID(s))
		require.Equal(t, session.Connected, s.State())
	})
}

// Without a hold there is no deadline to meet, yet a client that has been away for a
// whole session timeout is told.
func TestLostWhileIdle(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		states, stop := session.Subscribe[session.State](s)
		defer stop()
		srv.Partition()
		start := time.Now()
		require.Equal(t, session.Connected, <-states)
		require.Equal(t, session.Suspended, <-states)
		require.Equal(t, session.Lost, <-states)
		require.LessOrEqual(t, time.Since(start), 9*time.Second)
		require.GreaterOrEqual(t, time.Since(start), 4*time.Second)
		fixture.Pass(10 * time.Second)
		srv.Heal()
		require.Equal(t, session.Reconnected, <-states, "in a new session, with no second Lost")
		require.Empty(t, drained(states))
	})
}

func TestExpiryIsLostBeforeReconnected(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		states, stop := session.Subscribe[session.State](s)
		defer stop()
		srv.Expire(fixture.SessionID(s))
		fixture.Pass(time.Second)
		require.Equal(t, []session.State{session.Connected, session.Suspended, session.Lost, session.Reconnected}, drained(states))
	})
}

// 500 cycles without a reader: nothing blocks, every Lost is there, and what is
// missing are pairs, so that each Suspended is still followed by its end.
func TestSlowSubscriber(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		states, stop := session.Subscribe[session.State](s)
		defer stop()
		losses := 0
		for i := range 500 {
			if i%10 == 0 {
				srv.Expire(fixture.SessionID(s))
				losses++
			} else {
				srv.Disconnect()
			}
			fixture.Eventually(t, 5*time.Second, func() bool { return s.State() == session.Connected })
		}
		all := drained(states)
		require.Less(t, len(all), 1000, "pairs are dropped")
		require.Equal(t, session.Connected, all[0])
		lost := 0
		for i, state := range all[1:] {
			previous := all[i]
			switch state {
			case session.Suspended:
				require.Contains(t, []session.State{session.Connected, session.Reconnected}, previous)
			case session.Lost:
				lost++
				require.Equal(t, session.Suspended, previous)
			case session.Reconnected:
				require.Contains(t, []session.State{session.Suspended, session.Lost}, previous)
			default:
				require.Fail(t, "unexpected", "%v", state)
			}
		}
		require.Equal(t, losses, lost)
		require.Equal(t, session.Reconnected, all[len(all)-1], "the latest state is never dropped")
	})
}

// When a subscription ends, its channel keeps 16 states of those that nobody has read: the latest, each of which follows from
// the one before.
func TestUnreadStatesAtTheEndOfASubscription(t *testing.T) {
	for _, losses := range []int{4, 5, 6, 40} {
		t.Run(fmt.Sprint(losses), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(6*time.Second))
				states, stop := session.Subscribe[session.State](s)
				for range losses {
					srv.Expire(fixture.SessionID(s))
					fixture.Eventually(t, 5*time.Second, func() bool { return s.State() == session.Connected })
				}
				stop()
				all := drained(states)
				want := []session.State{session.Connected}
				for range min(losses, 5) {
					want = append(want, session.Suspended, session.Lost, session.Reconnected)
				}
				require.Equal(t, want, all)
			})
		})
	}
}

func TestSubscribeAfterClose(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		require.NoError(t, s.Close())
		states, stop := session.Subscribe[session.State](s)
		require.Equal(t, session.Closed, <-states)
		_, open := <-states
		require.False(t, open)
		stop()
		stop()
	})
}

func TestStopTwiceAndConcurrently(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		states, stop := session.Subscribe[session.State](s)
		var stops sync.WaitGroup
		for range 10 {
			stops.Go(stop)
		}
		stops.Wait()
		stop()
		srv.Disconnect()
		require.Subset(t, []session.State{session.Connected}, drained(states), "nothing comes after stop")
		_, open := <-states
		require.False(t, open)
		require.Zero(t, s.Tables().Readers)
	})
}

func TestSubscribersAndCloseRace(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		var readers sync.WaitGroup
		for range 20 {
			readers.Go(func() {
				states, stop := session.Subscribe[session.State](s)
				defer stop()
				last := session.Suspended
				for state := range states {
					last = state
				}
				require.Equal(t, session.Closed, last)
			})
		}
		require.NoError(t, s.Close())
		readers.Wait()
	})
}

func TestStateNames(t *testing.T) {
	for state, name := range map[session.State]string{
		session.Suspended: "suspended", session.Connected: "connected", session.Reconnected: "reconnected", session.Lost: "lost", session.Closed: "closed",
	} {
		require.Equal(t, name, state.String())
	}
}
