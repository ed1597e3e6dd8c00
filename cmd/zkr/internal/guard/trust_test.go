//go:build linux

package guard

import (
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/boottime"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A lease that ends at this moment does not look like a held lease whose trust is about to end. The servers are not
// silent, and the command has its grace.
func TestTrustOfALeaseThatEnds(t *testing.T) {
	srv := zktest.NewServer(t)
	client, err := recipes.Connect(t.Context(), []string{srv.Addr()}, recipes.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	lock, err := mutex.New(client, "/lock")
	require.NoError(t, err)
	for range 100 {
		lease, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		time.AfterFunc(time.Millisecond, func() { srv.Delete(lease.Path()) })
		for {
			until, isHeld := trustOf(lease)
			if !isHeld {
				break
			}
			runtime.Gosched()
			require.Greater(t, until.Sub(boottime.Now()), client.SessionTimeout()/3)
		}
	}
}
