package mutex_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// TestSlowSubscriber never reads. The client continues, and the subscriber does not miss a Lost.
func TestSlowSubscriber(t *testing.T) {
	const cuts = 60
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Troubled()
		states, stop := client.Subscribe()
		defer stop()
		for range cuts {
			f.CutAndReconnect(client)
		}
		f.Srv.Expire(client.Conn().SessionID())
		require.NoError(f, bubble.Acquire(f.T, f.Mutex(client).Acquire).Release())
		require.NoError(f, client.Close())
		closed := time.Now()
		var got []recipes.ConnectionState
		for state := range states {
			got = append(got, state)
		}
		require.Less(f, time.Since(closed), 5*time.Second)
		require.Equal(f, recipes.Connected, got[0])
		f.Logf("%d states for %d cuts", len(got), cuts)
		require.Contains(f, got, recipes.Lost, "a Lost is never missed")
		require.Equal(f, recipes.Closed, got[len(got)-1])
	})
}
