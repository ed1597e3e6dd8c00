package faultproxy_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
)

func TestCutConnectionIsMadeAgainInTheSameSession(t *testing.T) {
	l := newLine(t)
	session := l.conn.SessionID()
	l.proxy.Cut()
	require.Eventually(t, func() bool { return l.proxy.Counts().Requests["connect"] == 2 }, patience, moment)
	waitSession(t, l.conn)
	require.Equal(t, session, l.conn.SessionID())
	require.NoError(t, l.create(newPath()))
}

func TestRefusedConnectionsGetThroughLater(t *testing.T) {
	server := ensemble.Shared(t).Server(0)
	p := faultproxy.New(t, server)
	p.Refuse(true)
	conn := dial(t, p.Addr())
	require.Eventually(t, func() bool { return p.Counts().Conns >= 2 }, patience, moment)
	require.NotEqual(t, zk.StateHasSession, conn.State())
	require.Zero(t, p.Counts().Requests["connect"])
	p.Refuse(false)
	waitSession(t, conn)
}

func TestProxyOfADeadServerClosesConnections(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	p := faultproxy.New(t, listener.Addr().String())
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
}

func TestHeldLineIsSilentAndThenFlows(t *testing.T) {
	l := newLine(t)
	path := newPath()
	l.proxy.Hold()
	result := l.createAsync(path)
	late := dial(t, l.proxy.Addr())
	requireSilence(t, result)
	require.False(t, l.exists(t, path))
	require.NotEqual(t, zk.StateHasSession, late.State())
	require.Positive(t, l.proxy.Live(), "nobody is told")
	l.proxy.Release()
	require.NoError(t, receive(t, result))
	waitSession(t, late)
}

func TestHoldUpKeepsRequestsBackAndHoldDownReplies(t *testing.T) {
	l := newLine(t)
	path := newPath()
	l.proxy.HoldUp()
	result := l.createAsync(path)
	requireSilence(t, result)
	require.False(t, l.exists(t, path))
	l.proxy.HoldDown()
	l.proxy.Release()
	require.NoError(t, receive(t, result))

	path = newPath()
	l.proxy.HoldDown()
	result = l.createAsync(path)
	require.Eventually(t, func() bool { return l.exists(t, path) }, patience, moment)
	requireSilence(t, result)
	l.proxy.Release()
	require.NoError(t, receive(t, result))
}

func TestHeldRequestArrivesAfterItsSenderGaveUp(t *testing.T) {
	l := newLine(t)
	path := newPath()
	l.proxy.Hold()
	require.Error(t, l.create(path), "the client gives up a silent connection by itself")
	require.False(t, l.exists(t, path))
	l.proxy.Release()
	require.Eventually(t, func() bool { return l.exists(t, path) }, patience, moment)
}

func TestHeldConnectionGivenUpNeverReachesTheServer(t *testing.T) {
	p := faultproxy.New(t, ensemble.Shared(t).Server(0))
	p.Hold()
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return p.Live() == 1 }, patience, moment)
	_, err = conn.Write([]byte{0, 0, 0, 1, 0})
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return p.Live() == 0 }, patience, moment)
	p.Release()
	p.Close()
	require.Zero(t, p.Counts().BytesUp)
}

func TestDelayIsLatencyAndNotThroughput(t *testing.T) {
	const delay, calls = 50 * time.Millisecond, 100
	l := newLine(t)
	l.proxy.Delay(delay)
	start := time.Now()
	results := make([]<-chan error, calls)
	for i := range results {
		results[i] = l.createAsync(fmt.Sprintf("%s-%d", newPath(), i))
	}
	for _, result := range results {
		require.NoError(t, receive(t, result))
	}
	took := time.Since(start)
	require.GreaterOrEqual(t, took, 2*delay, "there and back")
	require.Less(t, took, calls*delay, "one wait for all of them")
}

func TestCloseEndsHeldConnections(t *testing.T) {
	l := newLine(t)
	l.proxy.Hold()
	arrived, _ := l.proxy.HoldRequest(faultproxy.Any())
	result := l.createAsync(newPath())
	requireSilence(t, arrived)
	l.proxy.Close()
	l.proxy.Close()
	require.Error(t, receive(t, result))
	require.Zero(t, l.proxy.Live())
}
