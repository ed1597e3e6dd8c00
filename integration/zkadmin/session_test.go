package zkadmin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestHandshakeOpensASessionAndClosesIt(t *testing.T) {
	srv := zktest.NewServer(t)
	log := srv.Observe()
	require.NoError(t, Handshake(t.Context(), srv.Addr()))
	require.Equal(t, 1, log.Count(zktest.OpConnect))
	require.Equal(t, 1, log.Count(zktest.OpClose))
	require.Empty(t, srv.Sessions())
}

func TestExpireOfNoSession(t *testing.T) {
	srv := zktest.NewServer(t)
	require.ErrorIs(t, Expire(t.Context(), srv.Addr(), 0x1234567890), ErrNoSession)
	require.Empty(t, srv.Sessions())
}

// A server that ends the connection instead of an answer.
func TestHandshakeWithoutAnAnswer(t *testing.T) {
	srv := zktest.NewServer(t)
	for _, op := range []zktest.Op{zktest.OpConnect, zktest.OpClose} {
		srv.DropReply(op, 1)
		require.Error(t, Handshake(t.Context(), srv.Addr()), op)
	}
	srv.Stop()
	require.Error(t, Handshake(t.Context(), srv.Addr()))
}
