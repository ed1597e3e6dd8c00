package mutex_test

import (
	"context"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// peer listens on loopback and sends each client an answer. It hangs up at the end of the test.
func peer(t *testing.T, answer string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var work sync.WaitGroup
	var lines []net.Conn
	work.Go(func() {
		for {
			line, err := listener.Accept()
			if err != nil {
				return
			}
			lines = append(lines, line)
			_, _ = line.Write([]byte(answer))
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		work.Wait()
		for _, line := range lines {
			_ = line.Close()
		}
	})
	return listener.Addr().String()
}

// A server that takes the connection and says nothing costs no more than the context
// allows, and the error says what was waited for.
func TestConnectToASilentPeer(t *testing.T) {
	address := peer(t, "")
	shortest := time.Hour
	for range 3 { // zk.Conn.Close may lose a race against zk.Conn, and wait for a second
		ctx, cancel := context.WithTimeout(testkit.Context(t), 500*time.Millisecond)
		begin := time.Now()
		_, err := recipes.Connect(ctx, []string{address})
		shortest = min(shortest, time.Since(begin))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "handshake with "+address+": no answer yet")
	}
	require.Less(t, shortest, 1400*time.Millisecond)
}

// Another protocol than ZooKeeper's is recognized, and its lengths are not believed: "HTTP" would be a frame of 1.2
// GB.
func TestConnectToAnotherProtocol(t *testing.T) {
	address := peer(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := recipes.Connect(testkit.Context(t), []string{address}, recipes.WithConnectTimeout(2*time.Second))
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "handshake with "+address+": the answer is not in ZooKeeper's protocol")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20))
}
