package mutex_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A client leaves a server that loses the answers to a create and to the list behind it, and goes on answering pings. Answers come
// in the order of the requests, so that of a ping shows that the others are lost.
func TestLostAnswersBesideAnsweredPings(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.client()
		f.srv.DropAnswer(zktest.OpCreate2, 1)
		f.srv.DropAnswer(zktest.OpGetChildren2, 1)
		ctx, cancel := context.WithTimeout(f.Context(), time.Hour)
		defer cancel()
		lease, err := f.mutex(client).Acquire(ctx)
		require.NoError(f, err)
		require.Len(f, f.queue(), 1)
		require.NoError(f, lease.Release())
		require.Empty(f, f.queue())
	})
}
