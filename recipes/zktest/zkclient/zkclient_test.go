package zkclient_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// everywhere runs a test inside and outside a bubble.
func everywhere(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Run("real time", test)
	t.Run("virtual time", func(t *testing.T) { testkit.Bubble(t, test) })
}

func TestConnect(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		t.Helper()
		server := zktest.NewServer(t)
		t.Cleanup(func() { // runs after the client's cleanup
			require.Empty(t, server.Sessions(), "closed at the end of the test")
		})
		client := zkclient.Connect(t, server, recipes.WithSessionTimeout(5*time.Second))
		require.Equal(t, recipes.Connected, client.State())
		require.Equal(t, 5*time.Second, client.SessionTimeout())
		lock, err := mutex.New(client, "/locks/a")
		require.NoError(t, err)
		lease, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release())
		server.RequireIdle(t)
	})
}

func TestConnectToOneOfSeveral(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		t.Helper()
		server := zktest.NewServer(t, zktest.WithServers(3))
		second := server.Addrs()[1]
		client := zkclient.ConnectTo(t, server, []string{second})
		session, alive := server.Session(client.Conn().SessionID())
		require.True(t, alive)
		require.Equal(t, second, session.Server)
	})
}

// Nothing listens in a bubble; the error of a dial names the Dialer.
func TestAddressInABubbleSuggestsTheDialer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		_, err := net.Dial("tcp", server.Addr())
		require.ErrorContains(t, err, "use-Server.Dialer")
		_, err = recipes.Connect(t.Context(), []string{server.Addr()}, recipes.WithConnectTimeout(time.Second))
		require.ErrorContains(t, err, "use-Server.Dialer")
	})
}
