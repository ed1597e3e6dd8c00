package chaos

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// A look ends with its context at a server that takes the connection and says nothing, and leaves no goroutine
// and no connection behind.
func TestLookAtASilentServer(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { // ends with the look
		_, _, err := show(ctx, server.Addr().String())
		failed <- err
	}()
	line, err := server.Accept()
	require.NoError(t, err)
	defer line.Close()
	cancel()
	require.Error(t, <-failed)
	_, _ = io.Copy(io.Discard, line) // ends when look closes its end
}
