package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The followers' lists are as rare as a server allows: its minimum for T is two
// ticks, and there are two lists a tick.
func listsOf(timeout time.Duration) time.Duration { return timeout / 4 }

// listening is an ensemble whose next list arrives after phase.
func listening(t *testing.T, timeout, phase time.Duration) *fixture.Ensemble {
	t.Helper()
	srv := fixture.NewEnsemble(t, zktest.WithTouchInterval(listsOf(timeout)))
	bubble.Pass(listsOf(timeout) - phase)
	return srv
}

// silencedAt holds a lock over two heartbeats, and then nothing passes any more from
// offset into the cycle on. It checks when the hold ends: at the deadline to the
// nanosecond, and a margin before the server can give the lock away.
func silencedAt(t *testing.T, timeout, offset time.Duration) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		srv := listening(t, timeout, offset%listsOf(timeout)+time.Millisecond)
		s := fixture.Connect(t, srv.Config(timeout))
		id := fixture.SessionID(s)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		bubble.Pass(timeout/3 + offset)
		srv.Partition()
		proven := srv.LastWrite()
		expiry := srv.ExpiryOf(id)

		at, cause := bubble.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrSessionLost)
		require.Equal(t, 2*timeout/3, at.Sub(proven))
		require.Equal(t, at, e.TrustedUntil(), "the last deadline stays readable")
		require.GreaterOrEqual(t, expiry.Sub(at), timeout/12, "T/12 has to be left for clock rates")
		require.True(t, srv.Alive(id))
		require.ErrorIs(t, e.Leave(), zkutil.ErrSessionLost)
		require.ErrorIs(t, e.Leave(), zkutil.ErrNotHeld)
		srv.Heal()
	})
}

func TestHoldEndsBeforeTheServerExpiresIt(t *testing.T) {
	for _, timeout := range []time.Duration{time.Second, 4 * time.Second, 30 * time.Second, time.Minute} {
		t.Run(timeout.String(), func(t *testing.T) {
			for offset := time.Millisecond; offset < timeout/6; offset += testkit.Shorter(50*time.Millisecond, 150*time.Millisecond) {
				silencedAt(t, timeout, offset)
			}
		})
	}
}

// The leader knows an idle session only by its pings, every T/3. That must not consume the margin.
func TestFirstHoldOfAnIdleSessionKeepsTheMargin(t *testing.T) {
	const timeout = 12 * time.Second
	for offset := time.Duration(0); offset < timeout/3; offset += testkit.Shorter(100*time.Millisecond, 400*time.Millisecond) {
		for phase := time.Millisecond; phase < listsOf(timeout); phase += 300 * time.Millisecond {
			testkit.Bubble(t, func(t *testing.T) {
				srv := listening(t, timeout, phase)
				s := fixture.Connect(t, srv.Config(timeout))
				bubble.Pass(2*timeout + offset)
				e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
				srv.Partition()
				expiry := srv.ExpiryOf(fixture.SessionID(s))
				at, cause := bubble.Ended(t, e)
				require.ErrorIs(t, cause, zkutil.ErrSessionLost)
				require.GreaterOrEqual(t, expiry.Sub(at), timeout/12, "idle for %v, lists at %v", offset, phase)
				srv.Heal()
			})
		}
	}
}

// A server cut off from its quorum still gives answers that prove nothing.
func TestIsolatedServerIsNoProof(t *testing.T) {
	for _, timeout := range []time.Duration{time.Second, 4 * time.Second, 30 * time.Second} {
		for offset := time.Millisecond; offset < timeout/6; offset += 50 * time.Millisecond {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(timeout))
				q := fixture.MutexOn(s, "/m")
				e := bubble.Acquire(t, q.Acquire)
				bubble.Pass(timeout/3 + offset)
				srv.Isolate(srv.A)
				proven := srv.LastWrite()
				_, err := q.Participants(t.Context())
				require.NoError(t, err, "it answers reads")

				at, cause := bubble.Ended(t, e)
				require.ErrorIs(t, cause, zkutil.ErrSessionLost)
				require.Equal(t, 2*timeout/3, at.Sub(proven))
				srv.Heal()
			})
		}
	}
}

// The heartbeat is unanswered for T/6. The socket is closed, another server is tried, and the lease survives.
func TestSecondServerKeepsTheLease(t *testing.T) {
	const timeout = 6 * time.Second
	for offset := time.Millisecond; offset < timeout/6; offset += 50 * time.Millisecond {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(timeout, srv.A, srv.B))
			e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
			token := e.Token()
			bubble.Pass(timeout/3 + offset)
			bad := srv.LatestEnd()
			srv.Isolate(bad.Server)

			unanswered, dials := 0*time.Second, len(srv.Dialled())
			bubble.Eventually(t, timeout, func() bool { return len(srv.Dialled()) > dials })
			at := time.Now()
			for _, r := range srv.Log.Requests(zktest.OpMulti) {
				if r.Server == bad.Server {
					unanswered = at.Sub(r.Time)
				}
			}
			require.InDelta(t, timeout/6, unanswered, float64(10*time.Millisecond), "from the unanswered heartbeat to the next server")
			bubble.Pass(10 * time.Millisecond)
			require.True(t, bubble.IsClosed(bad.Closed), "nothing is expected from it once the next server has answered")

			bubble.Pass(10 * timeout)
			require.NoError(t, e.Context().Err())
			require.Equal(t, token, e.Token())
			require.True(t, time.Now().Before(e.TrustedUntil()))
			require.NoError(t, e.Leave())
			require.Empty(t, srv.Children("/m"))
		})
	}
}

// After an outage that the session survives, a hold stays over: its znode is deleted, and its context has the cause.
func TestEndedHoldIsDeletedWhenTheSessionComesBack(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		const timeout = 30 * time.Second
		s := fixture.Connect(t, srv.Config(timeout))
		id := fixture.SessionID(s)
		q := fixture.MutexOn(s, "/m")
		e := bubble.Acquire(t, q.Acquire)
		srv.Partition()
		_, cause := bubble.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrSessionLost)
		require.Len(t, srv.Children("/m"), 1)
		srv.Heal()
		bubble.Eventually(t, timeout/3, func() bool { return len(srv.Children("/m")) == 0 })
		require.Equal(t, id, fixture.SessionID(s), "the session came back alive")

		_, err := q.Reenter(e.Context())
		require.ErrorIs(t, err, zkutil.ErrSessionLost)
		next := bubble.Acquire(t, q.Acquire)
		require.Greater(t, next.Token(), e.Token())
		require.NoError(t, next.Leave())
	})
}

// The server reports that the session is over. The hold ends at once, and the next acquire of the same queue works.
func TestExpiredSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		q := fixture.MutexOn(s, "/m")
		e := bubble.Acquire(t, q.Acquire)
		old := fixture.SessionID(s)
		srv.Expire(old)
		_, cause := bubble.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrSessionLost)
		require.ErrorIs(t, e.Leave(), zkutil.ErrSessionLost)
		next := bubble.Acquire(t, q.Acquire)
		require.NotEqual(t, old, fixture.SessionID(s))
		require.NoError(t, next.Leave())
	})
}

// Under the standard policy, a disconnect ends a hold, even if the session survives.
func TestSuspendedEndsTheHoldUnderStandardPolicy(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(6 * time.Second)
		cfg.SuspendEnds = true
		s := fixture.Connect(t, cfg)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		start := time.Now()
		srv.Disconnect()
		at, cause := bubble.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrSuspended)
		require.Equal(t, start, at)
		require.ErrorIs(t, e.Leave(), zkutil.ErrSuspended)
		bubble.Eventually(t, time.Second, func() bool { return len(srv.Children("/m")) == 0 })
	})
}

// A disconnect that is repaired in time costs no lease.
func TestReconnectKeepsTheHold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		for range 50 {
			srv.Disconnect()
			bubble.Pass(700 * time.Millisecond)
		}
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Leave())
		require.Empty(t, srv.Children("/m"))
	})
}

// A reconnect shortly before the deadline is in time, because the overdue heartbeat is sent at once.
func TestReconnectJustBeforeTheDeadlineKeepsTheHold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		const timeout = 6 * time.Second
		s := fixture.Connect(t, srv.Config(timeout))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		bubble.Pass(900 * time.Millisecond)
		srv.Stop(srv.A) // dials every half second, from 0.9 s on
		bubble.Pass(2600 * time.Millisecond)
		srv.Restart(srv.A)
		require.Equal(t, 500*time.Millisecond, time.Until(e.TrustedUntil()))
		dialed := srv.Log.Requests(zktest.OpConnect)
		bubble.Pass(450 * time.Millisecond)
		require.Len(t, srv.Log.Requests(zktest.OpConnect), len(dialed)+1)
		bubble.Pass(timeout)
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Leave())
	})
}
