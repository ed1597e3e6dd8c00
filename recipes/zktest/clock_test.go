package zktest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The leader's clock stamps znodes, and measures the age of containers.
func TestClockOfTheLeader(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		for _, ahead := range []time.Duration{time.Hour, -24 * time.Hour, 0} {
			srv.SetClock(ahead)
			srv.Put("/a", nil)
			_, stat, _ := srv.Get("/a")
			want := time.Now().Add(ahead).UnixMilli()
			require.Equal(t, want, stat.Mtime)
			if ahead == time.Hour {
				require.Equal(t, want, stat.Ctime)
			}
		}
	})
}
