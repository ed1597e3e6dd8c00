package mutex_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/schedule"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// One holder at a time, in the queue's order, with growing tokens, under the faults of schedule.Run.
func TestFaultSchedules(t *testing.T) {
	schedule.Run(t, schedule.Recipe{
		Package: "mutex",
		New: func(tb testing.TB, client *recipes.Client, path string) []schedule.Lock {
			tb.Helper()
			m, err := mutex.New(client, path)
			require.NoError(tb, err)
			return []schedule.Lock{m}
		},
	})
}

// The same with leases that end after 3 s. The znode stays until their holders release them.
func TestFaultSchedulesWithMaxHold(t *testing.T) {
	const maxHold = 3 * time.Second
	schedule.Run(t, schedule.Recipe{
		Package: "mutex",
		Fewer:   true,
		MaxHold: maxHold,
		New: func(tb testing.TB, client *recipes.Client, path string) []schedule.Lock {
			tb.Helper()
			m, err := mutex.New(client, path, mutex.WithMaxHold(maxHold))
			require.NoError(tb, err)
			return []schedule.Lock{m}
		},
	})
}

// The same on servers that resume no session.
func TestFaultSchedulesOnClickHouseKeeper(t *testing.T) {
	schedule.Run(t, schedule.Recipe{
		Package: "mutex",
		Fewer:   true,
		Dialect: zktest.ClickHouseKeeper,
		New: func(tb testing.TB, client *recipes.Client, path string) []schedule.Lock {
			tb.Helper()
			m, err := mutex.New(client, path)
			require.NoError(tb, err)
			return []schedule.Lock{m}
		},
	})
}

// The same with cohorts beside a plain mutex. Leases inside one cohort follow each other by Release, with equal tokens.
func TestFaultSchedulesOfCohorts(t *testing.T) {
	bounds := []mutex.Option{
		mutex.WithCohort(mutex.Cohort{MaxPasses: 2, MaxTenure: time.Hour}),
		mutex.WithCohort(mutex.Cohort{MaxTenure: 10 * time.Millisecond, Linger: 20 * time.Millisecond}),
		mutex.WithID("plain"),
	}
	schedule.Run(t, schedule.Recipe{
		Package: "mutex",
		Fewer:   true,
		NewInCohort: func(tb testing.TB, client *recipes.Client, path string, number int) []schedule.Lock {
			tb.Helper()
			m, err := mutex.New(client, path, bounds[number])
			require.NoError(tb, err)
			return []schedule.Lock{m}
		},
	})
}
