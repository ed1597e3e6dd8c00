package semaphore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/schedule"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// No more permits than the limit are held, under the faults of schedule.Run. Of three clients with up to two goroutines each,
// some wait. Every other acquisition, except those of Do, is for two permits at once, and gets both or none.
func TestFaultSchedules(t *testing.T) {
	const limit = 2 // so that acquisitions for two wait for each other and for acquisitions of one
	schedule.Run(t, schedule.Recipe{
		Package: "semaphore",
		Fewer:   true,
		New: func(tb testing.TB, client *recipes.Client, path string) []schedule.Lock {
			tb.Helper()
			s, err := semaphore.New(client, path, limit)
			require.NoError(tb, err)
			return []schedule.Lock{s}
		},
		Limit: limit,
	})
}

// The same with a shared limit, which changes up and down to 0: requests above it let others pass, and none is forgotten.
func TestFaultSchedulesWithASharedLimit(t *testing.T) {
	const limit = 3
	schedule.Run(t, schedule.Recipe{
		Package: "semaphore",
		Fewer:   true,
		New: func(tb testing.TB, client *recipes.Client, path string) []schedule.Lock {
			tb.Helper()
			s, err := semaphore.New(client, path, limit, semaphore.WithSharedLimit(shared))
			require.NoError(tb, err)
			return []schedule.Lock{s}
		},
		Limit:       limit,
		SharedLimit: shared,
	})
}
