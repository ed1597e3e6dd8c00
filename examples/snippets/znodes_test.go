package snippets

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

func TestWriteReport(t *testing.T) {
	server := zktest.NewServer(t)
	server.Put("/report", nil)
	client := zkclient.Connect(t, server)
	lease, err := lockOn(t, client, "/locks/report").Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, writeReport(client, lease, []byte("first")))
	require.NoError(t, lease.Release())
	require.ErrorIs(t, writeReport(client, lease, []byte("second")), zk.ErrNoNode)
	data, _, _ := server.Get("/report")
	require.Equal(t, "first", string(data))
}

func TestFollow(t *testing.T) {
	server := zktest.NewServer(t)
	client := zkclient.Connect(t, server)
	ctx, cancel := context.WithCancel(t.Context())
	seen, ended := make(chan string), make(chan error)
	go func() {
		ended <- follow(ctx, client.Conn(), "/config", func(data []byte) { seen <- string(data) })
	}()
	server.Put("/config", []byte("1"))
	require.Equal(t, "1", <-seen)
	server.Put("/config", []byte("2"))
	require.Equal(t, "2", <-seen)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// The connection errors named in the snippets: the answer is lost, and no server can be reached.
func TestErrorsOfConn(t *testing.T) {
	server := zktest.NewServer(t)
	server.Put("/counter", make([]byte, 8))
	conn := zkclient.Connect(t, server).Conn()
	server.DropReply(zktest.OpSetData, 1)
	_, err := add(conn, "/counter", 3)
	require.ErrorIs(t, err, zk.ErrConnectionClosed)
	data, _, _ := server.Get("/counter")
	require.EqualValues(t, 3, data[7], "added all the same")

	server.Stop(server.Addr())
	require.Eventually(t, func() bool { // the first reads may be sent before the client sees the end of its connection
		return errors.Is(follow(t.Context(), conn, "/counter", func([]byte) {}), zk.ErrNoServer)
	}, 10*time.Second, time.Millisecond)
}

func TestWaitOnBarrier(t *testing.T) {
	server := zktest.NewServer(t)
	client := zkclient.Connect(t, server)
	server.Put("/barrier", nil)
	ended := make(chan error)
	go func() { ended <- waitOnBarrier(t.Context(), client.Conn(), "/barrier") }()
	require.Eventually(t, func() bool { return server.Sessions()[0].Watches == 1 }, 10*time.Second, time.Millisecond)
	server.Delete("/barrier")
	require.NoError(t, <-ended)
}

func TestAdd(t *testing.T) {
	server := zktest.NewServer(t)
	server.Put("/counter", make([]byte, 8))
	conn := zkclient.Connect(t, server).Conn()
	for _, sum := range []int64{3, 6} {
		got, err := add(conn, "/counter", 3)
		require.NoError(t, err)
		require.Equal(t, sum, got)
	}
	data, _, _ := server.Get("/counter")
	require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0, 6}, data)
}
