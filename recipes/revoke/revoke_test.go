package revoke_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
)

// A path that is no contender's is refused before anything is sent, and without a server only the caller's context
// bounds the call.
func TestAttemptRevoke(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		client, err := recipes.Open([]string{"10.0.0.1:2181"}, recipes.WithDialer(func(string, string, time.Duration) (net.Conn, error) { return nil, errors.New("connection refused") }))
		require.NoError(t, err)
		revoker := revoke.New(client)

		start := time.Now()
		for _, path := range []string{"", "lock-0000000001", "/", "/stock", "/locks/a/config", "/locks/a/lock-", "/locks//lock-0000000001"} {
			err := revoker.AttemptRevoke(t.Context(), path)
			require.ErrorIs(t, err, recipes.ErrInvalidPath, "%q", path)
			require.ErrorContains(t, err, (&recipes.OpError{Op: "revoke: attempt", Path: path, Err: errors.New("")}).Error())
		}
		require.Equal(t, start, time.Now(), "refused at once")

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		const contender = "/locks/a/_c_x-lock-0000000001"
		require.ErrorIs(t, revoker.AttemptRevoke(ctx, contender), context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(start))

		require.NoError(t, client.Close())
		require.ErrorIs(t, revoker.AttemptRevoke(t.Context(), contender), recipes.ErrClosed)
		err = revoke.New(nil).AttemptRevoke(t.Context(), contender)
		require.ErrorIs(t, err, recipes.ErrInvalidArgument)
		require.ErrorContains(t, err, "the client is nil")
	})
}
