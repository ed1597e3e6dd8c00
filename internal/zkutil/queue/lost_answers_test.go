package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A client leaves a server that loses the answers to a create and to its list, and still answers pings. Answers arrive in the
// order of the requests, so the answer to a ping shows that the others are lost.
func TestLostAnswersBesideAnsweredPings(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		f.Srv.DropAnswer(zktest.OpCreate2, 1)
		f.Srv.DropAnswer(zktest.OpGetChildren2, 1)
		ctx, cancel := context.WithTimeout(f.Context(), time.Hour)
		defer cancel()
		lease, err := f.Mutex(client).Acquire(ctx)
		require.NoError(f, err)
		require.Len(f, f.Contenders(), 1)
		require.NoError(f, lease.Release())
		require.Empty(f, f.Contenders())
	})
}

// A client leaves a server that loses the answer to the first of two credentials that are presented again, and still answers
// pings, because all requests wait for the second.
func TestLostAnswerToACredential(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client(recipes.WithAuth("digest", []byte("ann:secret")), recipes.WithAuth("digest", []byte("bob:secret")))
		f.Srv.DropAnswer(zktest.OpAuth, 1)
		f.Srv.Disconnect(client.Conn().SessionID())
		ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
		defer cancel()
		lease, err := f.Mutex(client).Acquire(ctx)
		require.NoError(f, err)
		require.NoError(f, lease.Release())
	})
}
