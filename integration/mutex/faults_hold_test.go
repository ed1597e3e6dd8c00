package mutex_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// lossIsTold checks the common properties of every loss: Release returns it once, and the same mutex value keeps
// working.
func lossIsTold(t *testing.T, m *mutex.InterProcessMutex, path string, lease *recipes.Lease, cause error) {
	t.Helper()
	require.ErrorIs(t, context.Cause(lease.Context()), cause)
	_, err := m.Acquire(lease.Context())
	require.ErrorIs(t, err, cause, "a context of an ended hold never acquires")
	require.ErrorIs(t, lease.Release(), cause)
	require.ErrorIs(t, lease.Release(), recipes.ErrNotHeld)
	next := acquire(t, m)
	require.NotEqual(t, lease.Path(), next.Path())
	require.Greater(t, next.FencingToken(), lease.FencingToken())
	require.Equal(t, []string{next.Path()}, queue(t, path))
	require.NoError(t, next.Release())
	require.Empty(t, children(t, path))
}

func TestSessionExpiredWhileHolding(t *testing.T) {
	client, proxy := proxied(t)
	path := testkit.Path(t)
	m := newMutex(t, client, path)
	lease := acquire(t, m)
	inner, err := m.Acquire(lease.Context())
	require.NoError(t, err)
	expireUnheard(t, client, proxy)
	require.ErrorIs(t, ended(t, lease), recipes.ErrSessionLost)
	require.ErrorIs(t, ended(t, inner), recipes.ErrSessionLost)
	require.ErrorIs(t, inner.Release(), recipes.ErrSessionLost)
	lossIsTold(t, m, path, lease, recipes.ErrSessionLost)
}

func TestOwnNodeDeletedWhileHolding(t *testing.T) {
	path := testkit.Path(t)
	m := newMutex(t, direct(t, recipes.WithSessionTimeout(calm)), path)
	lease := acquire(t, m)
	end := endOf(lease)
	deleteNode(t, lease.Path())
	deleted := time.Now()
	require.Less(t, moment(t, end, "the end of the lease").Sub(deleted), calm/6, "the watch tells it, not the next heartbeat")
	lossIsTold(t, m, path, lease, recipes.ErrNodeDeleted)
}

// TestOwnNodeDeletedDuringOutageOfHolder requires that the holder looks, because it gets no event.
func TestOwnNodeDeletedDuringOutageOfHolder(t *testing.T) {
	client, proxy := proxiedFor(t, calm)
	path := testkit.Path(t)
	m := newMutex(t, client, path)
	lease := acquire(t, m)
	over := outage(t, client, proxy)
	deleteNode(t, lease.Path())
	stands(t, lease)
	over()
	require.ErrorIs(t, ended(t, lease), recipes.ErrNodeDeleted)
	lossIsTold(t, m, path, lease, recipes.ErrNodeDeleted)
}

// TestSilentLineWhileHolding: guarantee 2. The holder hears nothing at all, and has to
// stop before the server gives the lock to another.
func TestSilentLineWhileHolding(t *testing.T) {
	for name, hold := range map[string]func(*faultproxy.Proxy){
		"both ways": (*faultproxy.Proxy).Hold,
		"requests":  (*faultproxy.Proxy).HoldUp,
	} {
		t.Run(name, func(t *testing.T) {
			const timeout = 6 * time.Second
			client, proxy := proxiedFor(t, timeout)
			path := testkit.Path(t)
			m := newMutex(t, client, path)
			lease := acquire(t, m)
			next := waiting(t, testkit.Context(t), newMutex(t, direct(t), path), path, 2)
			end, gone := endOf(lease), deletionOf(t, lease.Path())

			silent := time.Now()
			hold(proxy)
			endTime := moment(t, end, "the end of the lease")
			require.ErrorIs(t, ended(t, lease), recipes.ErrSessionLost)
			notGranted(t, next, "the waiter, before the holder's session has expired")
			goneTime := moment(t, gone, "the expiry")
			t.Logf("silent at 0, lease ended at %v, znode gone at %v", endTime.Sub(silent), goneTime.Sub(silent))
			require.True(t, endTime.Before(goneTime), "the server was faster than the holder")
			require.GreaterOrEqual(t, endTime.Sub(silent), timeout/3, "given up long before it had to")
			successor := granted(t, next)
			require.Greater(t, successor.FencingToken(), lease.FencingToken())

			proxy.Release()
			reached(t, client, recipes.Connected)
			require.NoError(t, successor.Release())
			lossIsTold(t, m, path, lease, recipes.ErrSessionLost)
		})
	}
}

// TestAnswersHeldWhileHolding lets the holder's attempts to reconnect reach the server, which keeps the session,
// while the holder gets no answer.
func TestAnswersHeldWhileHolding(t *testing.T) {
	const timeout = 6 * time.Second
	client, proxy := proxiedFor(t, timeout)
	path := testkit.Path(t)
	m := newMutex(t, client, path)
	lease := acquire(t, m)
	next := waiting(t, testkit.Context(t), newMutex(t, direct(t), path), path, 2)
	proxy.HoldDown()
	silent := time.Now()
	require.ErrorIs(t, ended(t, lease), recipes.ErrSessionLost)
	require.Less(t, time.Since(silent), timeout)
	notGranted(t, next, "the waiter, while the holder's znode exists")
	proxy.Release()
	require.NoError(t, granted(t, next).Release())
	reached(t, client, recipes.Connected)
	lossIsTold(t, m, path, lease, recipes.ErrSessionLost)
}

// TestLocalDeadlineWhileSessionSurvives: trust ends after 2T/3, the session after T. If
// the line is back in between, the znode of the ended hold is deleted.
func TestLocalDeadlineWhileSessionSurvives(t *testing.T) {
	client, proxy := proxiedFor(t, calm)
	path := testkit.Path(t)
	m := newMutex(t, client, path)
	lease := acquire(t, m)
	session := client.Conn().SessionID()
	next := waiting(t, testkit.Context(t), newMutex(t, direct(t, recipes.WithSessionTimeout(calm)), path), path, 2)
	proxy.Hold()
	require.ErrorIs(t, ended(t, lease), recipes.ErrSessionLost)
	require.Len(t, children(t, path), 2, "the session must be alive at the server, or the test shows nothing")
	require.Equal(t, recipes.Lost, client.State())
	proxy.Release()
	successor := granted(t, next)
	require.True(t, client.Conn().SessionID() == session, "the session must survive, or the test shows nothing") //nolint:testifylint // Equal would print session ids
	reached(t, client, recipes.Connected)
	require.NoError(t, successor.Release())
	lossIsTold(t, m, path, lease, recipes.ErrSessionLost)
}

// TestHeartbeats: one empty transaction every T/6 while something is held,
// none while something is awaited, and nothing at all otherwise.
func TestHeartbeats(t *testing.T) {
	const timeout, beats = 6 * time.Second, 4
	const period = timeout / 6
	client, proxy := proxiedFor(t, timeout)
	path := testkit.Path(t)
	m := newMutex(t, client, path)
	multis := func() int { return proxy.Counts().Requests["multi"] }
	idle := func(why string) {
		t.Helper()
		before := proxy.Counts().Total()
		require.Never(t, func() bool { return proxy.Counts().Total() > before }, 2*period, 50*time.Millisecond, why)
	}
	// watch counts the heartbeats of a while. Other requests would prove the session in their place.
	watch := func(why string) {
		t.Helper()
		proxy.ResetCounts()
		began := time.Now()
		testkit.Eventually(t, func() bool { return multis() >= beats }, why)
		took := time.Since(began)
		require.GreaterOrEqual(t, took, (beats-1)*period-period/4, "%s: too many", why)
		require.Less(t, took, 2*beats*period, "%s: too few", why)
		counts := proxy.Counts()
		require.Equal(t, counts.Requests["multi"], counts.Total(), "%s: nothing but heartbeats", why)
	}
	idle("nothing is held")

	lease := acquire(t, m)
	testkit.Eventually(t, func() bool { return proxy.Counts().Requests["getData"] == 1 }, "the own znode is watched")
	testkit.Eventually(t, func() bool { return multis() >= 2*beats }, "the first heartbeats after an idle time, which come sooner")
	last := lease.TrustedUntil()
	require.WithinDuration(t, time.Now().Add(timeout*2/3), last, timeout/3)
	watch("held")
	require.GreaterOrEqual(t, lease.TrustedUntil().Sub(last), (beats-1)*period-period/4, "trust moves on")
	require.True(t, time.Now().Add(timeout/3).Before(lease.TrustedUntil()))

	other := newMutex(t, direct(t), path)
	stands(t, lease)
	require.NoError(t, lease.Release())
	idle("released")

	holder := acquire(t, other)
	proxy.ResetCounts()
	done := waiting(t, testkit.Context(t), m, path, 2)
	testkit.Eventually(t, func() bool { return proxy.Counts().Requests["getData"] == 2 }, "own znode and predecessor are watched")
	require.Never(t, func() bool { return multis() > 0 }, 2*period, 50*time.Millisecond, "who waits commits nothing")
	require.NoError(t, holder.Release())
	require.NoError(t, granted(t, done).Release())
	idle("released again")
}

func TestStandardErrorPolicy(t *testing.T) {
	client, proxy := proxiedFor(t, calm, recipes.WithErrorPolicy(recipes.StandardErrorPolicy))
	path := testkit.Path(t)
	m := newMutex(t, client, path)
	lease := acquire(t, m)
	session := client.Conn().SessionID()
	end := endOf(lease)
	proxy.Refuse(true)
	cut := time.Now()
	proxy.Cut()
	require.Less(t, moment(t, end, "the end of the lease").Sub(cut), calm/6)
	require.ErrorIs(t, ended(t, lease), recipes.ErrSuspended)
	require.Equal(t, []string{lease.Path()}, queue(t, path), "out of reach")
	proxy.Refuse(false)
	testkit.Eventually(t, func() bool { return len(children(t, path)) == 0 }, "the znode is deleted after the reconnect")
	require.True(t, client.Conn().SessionID() == session, "the session must survive, or the test shows nothing") //nolint:testifylint // Equal would print session ids
	lossIsTold(t, m, path, lease, recipes.ErrSuspended)
}

func TestSessionErrorPolicy(t *testing.T) {
	client, proxy := proxiedFor(t, calm)
	path := testkit.Path(t)
	m := newMutex(t, client, path)
	lease := acquire(t, m)
	token := lease.FencingToken()
	for range 3 {
		over := outage(t, client, proxy)
		stands(t, lease)
		over()
		reached(t, client, recipes.Connected)
		stands(t, lease)
	}
	require.Equal(t, token, lease.FencingToken())
	require.Equal(t, token, created(t, lease.Path()))
	require.NoError(t, lease.Release())
	require.Empty(t, children(t, path))
}

// TestSecondAddress requires that the client moves to another server after an unanswered heartbeat, while the lease
// is still valid.
func TestSecondAddress(t *testing.T) {
	const timeout = 9 * time.Second
	server := ensemble.Shared(t).Server(0)
	proxies := []*faultproxy.Proxy{faultproxy.New(t, server), faultproxy.New(t, server)}
	client, err := recipes.Connect(testkit.Context(t), []string{proxies[0].Addr(), proxies[1].Addr()}, recipes.WithSessionTimeout(timeout))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	path := testkit.Path(t)
	lease := acquire(t, newMutex(t, client, path))
	for round := range 3 {
		var live, other *faultproxy.Proxy
		testkit.Eventually(t, func() bool {
			live, other = proxies[0], proxies[1]
			if live.Live() == 0 {
				live, other = other, live
			}
			return live.Live() == 1 && other.Live() == 0 && client.State() == recipes.Connected &&
				time.Until(lease.TrustedUntil()) > timeout/2
		}, "one live line")
		live.Hold()
		silent := time.Now()
		testkit.Eventually(t, func() bool {
			return lease.Context().Err() != nil || lease.TrustedUntil().After(silent.Add(timeout*2/3))
		}, "proof through the other address")
		stands(t, lease)
		t.Logf("round %d: proven again after %v", round, time.Since(silent))
		live.Release()
	}
	require.Equal(t, created(t, lease.Path()), lease.FencingToken())
	require.NoError(t, lease.Release())
	require.Empty(t, children(t, path))
}
