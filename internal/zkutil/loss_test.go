package zkutil

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The followers' lists are as rare as a server allows: its minimum for T is two
// ticks, and there are two lists a tick.
func listsOf(timeout time.Duration) time.Duration { return timeout / 4 }

// silencedAt holds a lock over two heartbeats, and then nothing passes any more from
// offset into the cycle on. It checks when the hold ends: at the deadline to the
// nanosecond, and a margin before the server can give the lock away.
func silencedAt(t *testing.T, timeout, offset time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		f.listen(t, listsOf(timeout), offset%listsOf(timeout)+time.Millisecond)
		s := connect(t, f.config(timeout))
		id := sessionID(s)
		e := acquire(t, mutexOn(s, "/m"))
		pass(timeout/3 + offset)
		f.set(silent, serverA)
		proven := f.lastWrite()
		expiry := f.expiryOf(id)

		at, cause := ended(t, e)
		require.ErrorIs(t, cause, ErrSessionLost)
		require.Equal(t, 2*timeout/3, at.Sub(proven))
		require.Equal(t, at, e.TrustedUntil(), "the last deadline stays readable")
		require.GreaterOrEqual(t, expiry.Sub(at), timeout/12, "T/12 has to be left for clock rates")
		require.True(t, f.alive(id))
		require.ErrorIs(t, e.Leave(), ErrSessionLost)
		require.ErrorIs(t, e.Leave(), ErrNotHeld)
		f.set(healthy, serverA)
	})
}

func TestHoldEndsBeforeTheServerExpiresIt(t *testing.T) {
	for _, timeout := range []time.Duration{time.Second, 4 * time.Second, 30 * time.Second, time.Minute} {
		t.Run(timeout.String(), func(t *testing.T) {
			for offset := time.Millisecond; offset < timeout/6; offset += 50 * time.Millisecond {
				silencedAt(t, timeout, offset)
			}
		})
	}
}

// A session that was idle is known to the leader by its pings alone, which come
// every T/3: that must not eat the margin.
func TestFirstHoldOfAnIdleSessionKeepsTheMargin(t *testing.T) {
	const timeout = 12 * time.Second
	for offset := time.Duration(0); offset < timeout/3; offset += 100 * time.Millisecond {
		for phase := time.Millisecond; phase < listsOf(timeout); phase += 300 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, serverA)
				f.listen(t, listsOf(timeout), phase)
				s := connect(t, f.config(timeout))
				pass(2*timeout + offset)
				e := acquire(t, mutexOn(s, "/m"))
				f.set(silent, serverA)
				expiry := f.expiryOf(sessionID(s))
				at, cause := ended(t, e)
				require.ErrorIs(t, cause, ErrSessionLost)
				require.GreaterOrEqual(t, expiry.Sub(at), timeout/12, "idle for %v, lists at %v", offset, phase)
				f.set(healthy, serverA)
			})
		}
	}
}

// A server cut off from its quorum goes on answering what proves nothing.
func TestIsolatedServerIsNoProof(t *testing.T) {
	for _, timeout := range []time.Duration{time.Second, 4 * time.Second, 30 * time.Second} {
		for offset := time.Millisecond; offset < timeout/6; offset += 50 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, serverA)
				s := connect(t, f.config(timeout))
				q := mutexOn(s, "/m")
				e := acquire(t, q)
				pass(timeout/3 + offset)
				f.set(isolated, serverA)
				proven := f.lastWrite()
				_, err := q.Participants(t.Context())
				require.NoError(t, err, "it answers reads")

				at, cause := ended(t, e)
				require.ErrorIs(t, cause, ErrSessionLost)
				require.Equal(t, 2*timeout/3, at.Sub(proven))
				f.set(healthy, serverA)
			})
		}
	}
}

// The heartbeat is unanswered for T/6: the socket is closed, another server is
// tried, and the lease lives on.
func TestSecondServerKeepsTheLease(t *testing.T) {
	const timeout = 6 * time.Second
	for offset := time.Millisecond; offset < timeout/6; offset += 50 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, serverA, serverB)
			s := connect(t, f.config(timeout))
			e := acquire(t, mutexOn(s, "/m"))
			token := e.Token()
			pass(timeout/3 + offset)
			f.mu.Lock()
			bad := f.dials[len(f.dials)-1]
			f.mu.Unlock()
			f.set(isolated, bad)

			unanswered := 0 * time.Second
			cut := waitForCut(t, f, bad)
			for _, r := range f.requests(opMulti) {
				if r.server == bad {
					unanswered = cut.Sub(r.at)
				}
			}
			require.Equal(t, timeout/6, unanswered, "from the unanswered heartbeat to the closed socket")

			pass(10 * timeout)
			require.NoError(t, e.Context().Err())
			require.Equal(t, token, e.Token())
			require.True(t, time.Now().Before(e.TrustedUntil()))
			require.NoError(t, e.Leave())
			require.Empty(t, f.children("/m"))
		})
	}
}

// waitForCut returns when the client gave up its connection to a server.
func waitForCut(t *testing.T, f *fake, server string) time.Time {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		connected := false
		for l := range f.lines {
			connected = connected || l.server == server
		}
		if !connected {
			return time.Now()
		}
		f.changed.Wait()
	}
}

// After an outage that the session survives a hold is over for good: its znode is
// deleted, and the context that carried it says why.
func TestEndedHoldIsDeletedWhenTheSessionComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		const timeout = 30 * time.Second
		s := connect(t, f.config(timeout))
		id := sessionID(s)
		q := mutexOn(s, "/m")
		e := acquire(t, q)
		f.set(silent, serverA)
		_, cause := ended(t, e)
		require.ErrorIs(t, cause, ErrSessionLost)
		require.Len(t, f.children("/m"), 1)
		f.set(healthy, serverA)
		eventually(t, timeout/3, func() bool { return len(f.children("/m")) == 0 })
		require.Equal(t, id, sessionID(s), "the session came back alive")

		_, err := q.Reenter(e.Context())
		require.ErrorIs(t, err, ErrSessionLost)
		next := acquire(t, q)
		require.Greater(t, next.Token(), e.Token())
		require.NoError(t, next.Leave())
	})
}

// The server says that the session is over: the hold ends at once, the next acquire
// of the same queue works.
func TestExpiredSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s := connect(t, f.config(6*time.Second))
		q := mutexOn(s, "/m")
		e := acquire(t, q)
		old := sessionID(s)
		f.expire(old)
		_, cause := ended(t, e)
		require.ErrorIs(t, cause, ErrSessionLost)
		require.ErrorIs(t, e.Leave(), ErrSessionLost)
		next := acquire(t, q)
		require.NotEqual(t, old, sessionID(s))
		require.NoError(t, next.Leave())
	})
}

// Standard policy: the connection ends a hold, whatever the session does.
func TestSuspendedEndsTheHoldUnderStandardPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		cfg := f.config(6 * time.Second)
		cfg.SuspendEnds = true
		s := connect(t, cfg)
		e := acquire(t, mutexOn(s, "/m"))
		start := time.Now()
		f.drop()
		at, cause := ended(t, e)
		require.ErrorIs(t, cause, ErrSuspended)
		require.Equal(t, start, at)
		require.ErrorIs(t, e.Leave(), ErrSuspended)
		eventually(t, time.Second, func() bool { return len(f.children("/m")) == 0 })
	})
}

// A lost connection that comes back in time costs no lease.
func TestReconnectKeepsTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s := connect(t, f.config(6*time.Second))
		e := acquire(t, mutexOn(s, "/m"))
		for range 50 {
			f.drop()
			pass(700 * time.Millisecond)
		}
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Leave())
		require.Empty(t, f.children("/m"))
	})
}

// A reconnection shortly before the deadline is in time: the overdue heartbeat goes
// out at once.
func TestReconnectJustBeforeTheDeadlineKeepsTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		const timeout = 6 * time.Second
		s := connect(t, f.config(timeout))
		e := acquire(t, mutexOn(s, "/m"))
		pass(900 * time.Millisecond)
		f.set(refusing, serverA) // dials at 0.9, 1.9, 2.9 and 3.9 s
		f.drop()
		pass(2500 * time.Millisecond)
		f.set(healthy, serverA)
		require.Equal(t, 600*time.Millisecond, time.Until(e.TrustedUntil()))
		pass(timeout)
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Leave())
	})
}
