package snippets

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // Europe/Berlin, on every system

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// pass lets virtual time pass.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
}

func TestEveryNight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at midnight UTC
		server := zktest.NewServer(t)
		nights := make(chan time.Time, 10)
		var last *once.Once
		for range 3 { // hosts, whose processes start at different times
			o, err := once.New(zkclient.Connect(t, server), "/jobs/report")
			require.NoError(t, err)
			c := cron.New()
			require.NoError(t, everyNight(t.Context(), c, o, func(context.Context, *recipes.Lease) error {
				nights <- time.Now().UTC()
				return nil
			}))
			c.Start()
			defer func() { <-c.Stop().Done() }()
			pass(t, 7*time.Minute)
			last = o
		}
		pass(t, 27*time.Hour)
		require.Len(t, nights, 2, "one run a night on three hosts")
		record, err := last.Last(t.Context())
		require.NoError(t, err)
		require.Equal(t, "2000-01-02T03:00:00.000000000Z", record.Occurrence)
	})
}

// A process that starts after a tick makes up for it, if no host ran it.
func TestHourlyMakesUpForAMissedTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := zkclient.Connect(t, zktest.NewServer(t))
		pass(t, 40*time.Minute)
		runs := 0
		require.NoError(t, hourly(t.Context(), client, func(context.Context, *recipes.Lease) error { runs++; return nil }))
		require.Equal(t, 1, runs)
		o, err := once.New(client, "/jobs/report")
		require.NoError(t, err)
		record, err := o.Last(t.Context())
		require.NoError(t, err)
		require.Equal(t, "2000-01-01T00:00:00.000000000Z", record.Occurrence)
	})
}

// The ticks of @every count from the start of each process.
func TestTicksOfEvery(t *testing.T) {
	one := time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	two := one.Add(7 * time.Minute)
	every, err := cron.ParseStandard("@every 1h")
	require.NoError(t, err)
	require.Equal(t, 7*time.Minute, every.Next(two).Sub(every.Next(one)))
	hourly, err := cron.ParseStandard("@hourly")
	require.NoError(t, err)
	require.Equal(t, hourly.Next(one), hourly.Next(two))
}

// In local time, a job at 02:30 is left out when summer time begins, and runs twice when it ends.
func TestCronInSummerTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	nightly, err := cron.ParseStandard("CRON_TZ=Europe/Berlin 30 2 * * *")
	require.NoError(t, err)
	inMarch := nightly.Next(time.Date(2026, 3, 28, 12, 0, 0, 0, berlin))
	require.Equal(t, time.Date(2026, 3, 30, 2, 30, 0, 0, berlin), inMarch, "not on the 29th")
	first := nightly.Next(time.Date(2026, 10, 24, 12, 0, 0, 0, berlin))
	second := nightly.Next(first)
	require.Equal(t, time.Hour, second.Sub(first))
	require.Equal(t, first.Format(time.DateOnly), second.Format(time.DateOnly), "both on the 25th")
}
