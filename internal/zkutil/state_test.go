package zkutil

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// drained returns what a subscription has to offer now.
func drained(states <-chan State) (all []State) {
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
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		const timeout = 30 * time.Second
		s := connect(t, srv.config(timeout))
		states, stop := Subscribe[State](s)
		defer stop()
		require.Equal(t, []State{Connected}, drained(states))

		srv.Disconnect()
		pass(100 * time.Millisecond)
		require.Equal(t, []State{Suspended, Reconnected}, drained(states))
		require.Equal(t, Connected, s.State(), "Reconnected is an event only")

		srv.Stop(srv.a)
		require.Equal(t, []State{Suspended}, drained(states))
		srv.Restart(srv.a)
		pass(2 * time.Second)
		require.Equal(t, []State{Reconnected}, drained(states))
		require.NoError(t, s.Close())
		require.Equal(t, []State{Closed}, drained(states))
		_, open := <-states
		require.False(t, open)
	})
}

// Nobody says Lost but our own clock; the hold has ended by then. The session turns
// out to be alive: Reconnected follows.
func TestLostByTheLocalDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		const timeout = 30 * time.Second
		s := connect(t, srv.config(timeout))
		id := sessionID(s)
		e := acquire(t, mutexOn(s, "/m"))
		states, stop := Subscribe[State](s)
		defer stop()
		srv.Stop(srv.a)
		require.Equal(t, []State{Connected, Suspended}, drained(states))
		deadline := e.TrustedUntil()
		require.Equal(t, Lost, <-states)
		require.Equal(t, deadline, time.Now())
		require.Error(t, e.Context().Err(), "the hold ends before Lost is told")
		require.Equal(t, Lost, s.State())
		srv.Restart(srv.a)
		require.Equal(t, Reconnected, <-states)
		require.Equal(t, id, sessionID(s))
		require.Equal(t, Connected, s.State())
	})
}

// Without a hold there is no deadline to meet, yet a client that has been away for a
// whole session timeout is told.
func TestLostWhileIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		states, stop := Subscribe[State](s)
		defer stop()
		srv.Partition()
		start := time.Now()
		require.Equal(t, Connected, <-states)
		require.Equal(t, Suspended, <-states)
		require.Equal(t, Lost, <-states)
		require.LessOrEqual(t, time.Since(start), 9*time.Second)
		require.GreaterOrEqual(t, time.Since(start), 4*time.Second)
		pass(10 * time.Second)
		srv.Heal()
		require.Equal(t, Reconnected, <-states, "in a new session, with no second Lost")
		require.Empty(t, drained(states))
	})
}

func TestExpiryIsLostBeforeReconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		states, stop := Subscribe[State](s)
		defer stop()
		srv.Expire(sessionID(s))
		pass(time.Second)
		require.Equal(t, []State{Connected, Suspended, Lost, Reconnected}, drained(states))
	})
}

// 500 cycles without a reader: nothing blocks, every Lost is there, and what is
// missing are pairs, so that each Suspended is still followed by its end.
func TestSlowSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		states, stop := Subscribe[State](s)
		defer stop()
		losses := 0
		for i := range 500 {
			if i%10 == 0 {
				srv.Expire(sessionID(s))
				losses++
			} else {
				srv.Disconnect()
			}
			eventually(t, 5*time.Second, func() bool { return s.State() == Connected })
		}
		all := drained(states)
		require.Less(t, len(all), 1000, "pairs are dropped")
		require.Equal(t, Connected, all[0])
		lost := 0
		for i, state := range all[1:] {
			previous := all[i]
			switch state {
			case Suspended:
				require.Contains(t, []State{Connected, Reconnected}, previous)
			case Lost:
				lost++
				require.Equal(t, Suspended, previous)
			case Reconnected:
				require.Contains(t, []State{Suspended, Lost}, previous)
			default:
				require.Fail(t, "unexpected", "%v", state)
			}
		}
		require.Equal(t, losses, lost)
		require.Equal(t, Reconnected, all[len(all)-1], "the latest state is never dropped")
	})
}

func TestSubscribeAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		require.NoError(t, s.Close())
		states, stop := Subscribe[State](s)
		require.Equal(t, Closed, <-states)
		_, open := <-states
		require.False(t, open)
		stop()
		stop()
	})
}

func TestStopTwiceAndConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		states, stop := Subscribe[State](s)
		var stops sync.WaitGroup
		for range 10 {
			stops.Go(stop)
		}
		stops.Wait()
		stop()
		srv.Disconnect()
		require.Subset(t, []State{Connected}, drained(states), "nothing comes after stop")
		_, open := <-states
		require.False(t, open)
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Empty(t, s.readers)
	})
}

func TestSubscribersAndCloseRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		var readers sync.WaitGroup
		for range 20 {
			readers.Go(func() {
				states, stop := Subscribe[State](s)
				defer stop()
				last := Suspended
				for state := range states {
					last = state
				}
				require.Equal(t, Closed, last)
			})
		}
		require.NoError(t, s.Close())
		readers.Wait()
	})
}

func TestStateNames(t *testing.T) {
	for state, name := range map[State]string{
		Suspended: "suspended", Connected: "connected", Reconnected: "reconnected", Lost: "lost", Closed: "closed",
	} {
		require.Equal(t, name, state.String())
	}
}
