package session_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
)

// drained returns what a subscription has to offer now.
func drained(states <-chan connstate.State) (all []connstate.State) {
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
		states, stop := session.Subscribe[connstate.State](s)
		defer stop()
		require.Equal(t, []connstate.State{connstate.Connected}, drained(states))

		srv.Disconnect()
		bubble.Pass(100 * time.Millisecond)
		require.Equal(t, []connstate.State{connstate.Suspended, connstate.Reconnected}, drained(states))
		require.Equal(t, connstate.Connected, s.State(), "Reconnected is an event only")

		srv.Stop(srv.A)
		require.Equal(t, []connstate.State{connstate.Suspended}, drained(states))
		srv.Restart(srv.A)
		bubble.Pass(2 * time.Second)
		require.Equal(t, []connstate.State{connstate.Reconnected}, drained(states))
		require.NoError(t, s.Close())
		require.Equal(t, []connstate.State{connstate.Closed}, drained(states))
		_, open := <-states
		require.False(t, open)
	})
}

// The quorum commits nothing, and the connection stands. A session whose holds end for lack of a proof is Lost as well.
func TestLostWhileConnected(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second, srv.A))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		srv.SlowCommits(time.Hour)
		_, cause := bubble.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrSessionLost)
		synctest.Wait()
		require.Equal(t, connstate.Lost, s.State())
		require.Positive(t, srv.Open())
		srv.SlowCommits(0)
	})
}

// Only the client's own clock reports Lost; the hold ended by then. The session turns out to be alive, and Reconnected
// follows.
func TestLostByTheLocalDeadline(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		const timeout = 30 * time.Second
		s := fixture.Connect(t, srv.Config(timeout))
		id := fixture.SessionID(s)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		states, stop := session.Subscribe[connstate.State](s)
		defer stop()
		srv.Stop(srv.A)
		require.Equal(t, []connstate.State{connstate.Connected, connstate.Suspended}, drained(states))
		deadline := e.TrustedUntil()
		require.Equal(t, connstate.Lost, <-states)
		require.Equal(t, deadline, time.Now())
		require.Error(t, e.Context().Err(), "the hold ends before Lost is told")
		require.Equal(t, connstate.Lost, s.State())
		srv.Restart(srv.A)
		require.Equal(t, connstate.Reconnected, <-states)
		require.Equal(t, id, fixture.SessionID(s))
		require.Equal(t, connstate.Connected, s.State())
	})
}

// Without a hold there is no deadline to meet, yet a client that was disconnected for a whole session timeout reports
// Lost.
func TestLostWhileIdle(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		states, stop := session.Subscribe[connstate.State](s)
		defer stop()
		srv.Partition()
		start := time.Now()
		require.Equal(t, connstate.Connected, <-states)
		require.Equal(t, connstate.Suspended, <-states)
		require.Equal(t, connstate.Lost, <-states)
		require.LessOrEqual(t, time.Since(start), 9*time.Second)
		require.GreaterOrEqual(t, time.Since(start), 4*time.Second)
		bubble.Pass(10 * time.Second)
		srv.Heal()
		require.Equal(t, connstate.Reconnected, <-states, "in a new session, with no second Lost")
		require.Empty(t, drained(states))
	})
}

func TestExpiryIsLostBeforeReconnected(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		states, stop := session.Subscribe[connstate.State](s)
		defer stop()
		srv.Expire(fixture.SessionID(s))
		bubble.Pass(time.Second)
		require.Equal(t, []connstate.State{connstate.Connected, connstate.Suspended, connstate.Lost, connstate.Reconnected}, drained(states))
	})
}

// A server may answer the first handshake as if its session had expired. The client had none to lose.
func TestFirstHandshakeOfAnExpiredSessionIsNoLoss(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		cfg := fixture.NewEnsemble(t).Config(6 * time.Second)
		isAnswered := false
		cfg.Dialer = mangle(cfg.Dialer, func(op int32, body []byte) []byte {
			if op != proto.OpCreateSession || isAnswered {
				return nil
			}
			isAnswered = true
			return framed(make([]byte, len(body)))
		})
		var states []connstate.State
		cfg.Traces = []*trace.Hooks{{StateChange: func(e trace.StateChange) { states = append(states, e.To) }}}
		fixture.Connect(t, cfg)
		synctest.Wait()
		require.True(t, isAnswered)
		require.Equal(t, []connstate.State{connstate.Connected}, states)
	})
}

// A server may answer a reconnect with another session than the client's, whose holds are then lost.
func TestReconnectToAnotherSessionIsLost(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(6 * time.Second)
		handshakes := 0
		cfg.Dialer = mangle(cfg.Dialer, func(op int32, body []byte) []byte {
			if op != proto.OpCreateSession {
				return nil
			}
			handshakes++
			body[8] ^= byte(handshakes - 1) // of the session's id
			return framed(body)
		})
		s := fixture.Connect(t, cfg)
		id := fixture.SessionID(s)
		states, stop := session.Subscribe[connstate.State](s)
		defer stop()
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		srv.Disconnect()
		require.ErrorIs(t, bubble.Cause(t, e), zkutil.ErrSessionLost)
		require.NotEqual(t, id, fixture.SessionID(s))
		require.Equal(t, []connstate.State{connstate.Connected, connstate.Suspended, connstate.Lost, connstate.Reconnected}, drained(states))
	})
}

// 500 cycles without a reader: nothing blocks, every Lost is there, and what is
// missing are pairs, so that each Suspended is still followed by its end.
func TestSlowSubscriber(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		states, stop := session.Subscribe[connstate.State](s)
		defer stop()
		losses := 0
		for i := range 500 {
			if i%10 == 0 {
				srv.Expire(fixture.SessionID(s))
				losses++
			} else {
				srv.Disconnect()
			}
			bubble.Eventually(t, 5*time.Second, func() bool { return s.State() == connstate.Connected })
		}
		all := drained(states)
		require.Less(t, len(all), 1000, "pairs are dropped")
		require.Equal(t, connstate.Connected, all[0])
		lost := 0
		for i, state := range all[1:] {
			previous := all[i]
			switch state {
			case connstate.Suspended:
				require.Contains(t, []connstate.State{connstate.Connected, connstate.Reconnected}, previous)
			case connstate.Lost:
				lost++
				require.Equal(t, connstate.Suspended, previous)
			case connstate.Reconnected:
				require.Contains(t, []connstate.State{connstate.Suspended, connstate.Lost}, previous)
			default:
				require.Fail(t, "unexpected", "%v", state)
			}
		}
		require.Equal(t, losses, lost)
		require.Equal(t, connstate.Reconnected, all[len(all)-1], "the latest state is never dropped")
	})
}

// When a subscription ends, its channel keeps the latest 16 unread states, each of which follows from the one before.
func TestUnreadStatesAtTheEndOfASubscription(t *testing.T) {
	for _, losses := range []int{4, 5, 6, 40} {
		t.Run(fmt.Sprint(losses), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(6*time.Second))
				states, stop := session.Subscribe[connstate.State](s)
				for range losses {
					srv.Expire(fixture.SessionID(s))
					bubble.Eventually(t, 5*time.Second, func() bool { return s.State() == connstate.Connected })
				}
				stop()
				all := drained(states)
				want := []connstate.State{connstate.Connected}
				for range min(losses, 5) {
					want = append(want, connstate.Suspended, connstate.Lost, connstate.Reconnected)
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
		states, stop := session.Subscribe[connstate.State](s)
		require.Equal(t, connstate.Closed, <-states)
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
		states, stop := session.Subscribe[connstate.State](s)
		var stops sync.WaitGroup
		for range 10 {
			stops.Go(stop)
		}
		stops.Wait()
		stop()
		srv.Disconnect()
		require.Subset(t, []connstate.State{connstate.Connected}, drained(states), "nothing comes after stop")
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
				states, stop := session.Subscribe[connstate.State](s)
				defer stop()
				last := connstate.Suspended
				for state := range states {
					last = state
				}
				require.Equal(t, connstate.Closed, last)
			})
		}
		require.NoError(t, s.Close())
		readers.Wait()
	})
}

func TestStateNames(t *testing.T) {
	for state, name := range map[connstate.State]string{
		connstate.Suspended: "suspended", connstate.Connected: "connected", connstate.Reconnected: "reconnected", connstate.Lost: "lost", connstate.Closed: "closed",
	} {
		require.Equal(t, name, state.String())
	}
}
