package zkadmin

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// answering returns the address of a server that answers one exchange with a text.
func answering(t *testing.T, text string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.ReadFull(conn, make([]byte, len("wchp"))) // a close with unread bytes is a reset
		_, _ = io.WriteString(conn, text)
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return listener.Addr().String()
}

func TestWatches(t *testing.T) {
	for text, want := range map[string][]Watch{
		"":                                    nil,
		"\n":                                  nil,
		"/a\n\t0x1\n\t0x2\n/a/b c\n\t0x1\n\n": {{"/a", "0x1"}, {"/a", "0x2"}, {"/a/b c", "0x1"}},
	} {
		watches, err := Watches(t.Context(), answering(t, text))
		require.NoError(t, err)
		require.Equal(t, want, watches)
	}
	for _, text := range []string{"wchp is not executed because it is not in the whitelist.\n", "\t0x1\n"} {
		_, err := Watches(t.Context(), answering(t, text))
		require.ErrorContains(t, err, fmt.Sprintf("%q", strings.TrimSuffix(text, "\n")))
	}
	ctx, cancel := context.WithCancel(t.Context())
	address := answering(t, "")
	cancel()
	_, err := Watches(ctx, address)
	require.ErrorIs(t, err, context.Canceled)
}
