package edges_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// A server without a quorum that serves readers is no server for locks. Connect reports the reason, contexts bound
// the waits, and everything continues when the quorum is back.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	e := ensemble.New(t, ensemble.Config{Nodes: 2, JVMFlags: []string{"-Dreadonlymode.enabled=true"}})
	client := connect(t, e.Server(0), recipes.WithSessionTimeout(4*time.Second))
	m := newMutex(t, client, "/lock")
	lease := acquire(t, m)
	require.NoError(t, e.Kill(testkit.Context(t), 1))
	testkit.Eventually(t, func() bool {
		mode, _ := zkadmin.FourLetter(testkit.Context(t), e.Server(0), "isro")
		return mode == "ro"
	}, "read-only")

	began := time.Now()
	_, err := recipes.Connect(testkit.Context(t), []string{e.Server(0)}, recipes.WithConnectTimeout(2*time.Second))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), 2*time.Second+atOnce)
	require.ErrorContains(t, err, "handshake with "+e.Server(0))
	require.ErrorContains(t, err, "a read-only server")
	t.Log(err)
	require.ErrorIs(t, ended(t, lease), recipes.ErrSessionLost)
	brief, cancel := context.WithTimeout(testkit.Context(t), time.Second)
	defer cancel()
	_, err = m.Acquire(brief)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	require.NoError(t, e.StartNode(testkit.Context(t), 1))
	require.NoError(t, e.WaitServing(testkit.Context(t)))
	again := acquire(t, m)
	require.Greater(t, again.FencingToken(), lease.FencingToken())
	require.NoError(t, again.Release())
	conn := stranger(t, e.Server(0))
	testkit.Eventually(t, func() bool { children, _, err := conn.Children("/lock"); return err == nil && len(children) == 0 }, "nothing is left")
}

// What the server grants counts, not what was asked for: for the deadline of a lease, the
// pace of heartbeats and pings, and the patience with a silent line.
func TestTheGrantedSessionTimeoutCounts(t *testing.T) {
	t.Parallel()
	const asked, granted = time.Second, 9 * time.Second
	e := ensemble.New(t, ensemble.Config{Properties: map[string]string{"minSessionTimeout": "9000"}})
	proxy := faultproxy.New(t, e.Server(0))
	client := connect(t, proxy.Addr(), recipes.WithSessionTimeout(asked))
	require.Equal(t, granted, client.SessionTimeout())
	lease := acquire(t, newMutex(t, client, "/lock"))
	trust := time.Until(lease.TrustedUntil())
	require.Greater(t, trust, 2*asked, "the commit may have been slow")
	require.LessOrEqual(t, trust, 2*granted/3)

	// A heartbeat is due every 1.5 s, with a ping ahead, and a ping every 0.9 s; by what was asked for it would be six and ten a second.
	proxy.ResetCounts()
	began := time.Now()
	testkit.Eventually(t, func() bool { return proxy.Counts().Requests["multi"] >= 2 }, "heartbeats")
	require.Less(t, time.Until(lease.TrustedUntil()), 2*granted/3)
	require.LessOrEqual(t, float64(proxy.Counts().Pings), 1+3*time.Since(began).Seconds())

	// A connection that is lost for twice the requested timeout costs nothing.
	away := time.NewTimer(2 * asked)
	proxy.Refuse(true)
	proxy.Cut()
	<-away.C
	require.NoError(t, context.Cause(lease.Context()))
	proxy.Refuse(false)
	testkit.Eventually(t, func() bool { return client.State() == recipes.Connected }, "back")
	conn := stranger(t, e.Server(0))
	before := lease.TrustedUntil()
	testkit.Eventually(t, func() bool { return lease.TrustedUntil().After(before) }, "the answer to another heartbeat")
	require.NoError(t, context.Cause(lease.Context()))

	// If it stays lost, the lease ends by the granted timeout, before the server expires the session.
	proxy.Refuse(true)
	proxy.Cut()
	until := lease.TrustedUntil()
	require.ErrorIs(t, ended(t, lease), recipes.ErrSessionLost)
	require.WithinDuration(t, until, time.Now(), time.Second)
	children, _, err := conn.Children("/lock")
	require.NoError(t, err)
	require.Len(t, children, 1)
	require.True(t, strings.HasSuffix(lease.Path(), children[0]))
	proxy.Refuse(false)
}

// The bounds of a server change while it is down. Its next handshake grants the same session another timeout, shorter
// or longer, and later proofs count for that timeout.
func TestOneSessionIsGrantedAnotherTimeout(t *testing.T) {
	t.Parallel()
	const asked = 9 * time.Second
	e := ensemble.New(t, ensemble.Config{Properties: map[string]string{"minSessionTimeout": "2000", "maxSessionTimeout": "9000"}})
	client := connect(t, e.Server(0), recipes.WithSessionTimeout(asked))
	require.Equal(t, asked, client.SessionTimeout())
	id := client.Conn().SessionID()
	for _, bound := range []struct {
		from, to string
		granted  time.Duration
	}{
		{"maxSessionTimeout=9000", "maxSessionTimeout=6000", 6 * time.Second},
		{"maxSessionTimeout=6000", "maxSessionTimeout=9000", 6 * time.Second}, // zk.Conn requests the granted timeout
		{"minSessionTimeout=2000", "minSessionTimeout=8000", 8 * time.Second},
	} {
		ctx := testkit.Context(t)
		_, err := e.Exec(ctx, 0, "sed", "-i", "s/"+bound.from+"/"+bound.to+"/", "/conf/zoo.cfg")
		require.NoError(t, err)
		require.NoError(t, e.Kill(ctx, 0))
		require.NoError(t, e.StartNode(ctx, 0))
		testkit.Eventually(t, func() bool {
			return client.State() == recipes.Connected && client.SessionTimeout() == bound.granted
		}, bound.to)
		require.Equal(t, id, client.Conn().SessionID())
		lease := acquire(t, newMutex(t, client, "/lock"))
		require.LessOrEqual(t, time.Until(lease.TrustedUntil()), 2*bound.granted/3)
		require.NoError(t, lease.Release())
	}
}
