package rwlock_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/schedule"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

// A writer is alone, and no contender overtakes it, under the faults of schedule.Run.
func TestFaultSchedules(t *testing.T) {
	schedule.Run(t, schedule.Recipe{
		Package: "rwlock",
		Fewer:   true,
		New: func(tb testing.TB, client *recipes.Client, path string) []schedule.Lock {
			tb.Helper()
			l, err := rwlock.New(client, path)
			require.NoError(tb, err)
			return []schedule.Lock{l.WriteLock(), l.ReadLock()}
		},
		IsShared: func(path string) bool { return strings.Contains(path, "__READ__") },
	})
}
