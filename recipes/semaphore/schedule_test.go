package semaphore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/schedule"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// No more permits than the limit, whatever happens: see schedule.Run. Of three clients with up to two goroutines each, some wait.
// Every other acquisition but those of Do is for two permits at once: it has both, or none.
func TestFaultSchedules(t *testing.T) {
	const limit = 2 // so that acquisitions for two wait for each other and for those for one
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
