package gocronzkrecipes_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/contrib/gocronzkrecipes"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// nightly runs report at three every night, on the host that leads, until ctx ends.
func nightly(ctx context.Context, client *recipes.Client, report func(context.Context, *recipes.Lease) error) error {
	election, err := latch.New(client, "/elections/jobs")
	if err != nil {
		return err
	}
	elector := gocronzkrecipes.NewElector(election) // before Start of the latch
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector), gocron.WithLocation(time.UTC))
	if err != nil {
		return err
	}
	_, err = scheduler.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(elector.Task(report)))
	if err == nil {
		err = election.Start()
	}
	if err != nil {
		return errors.Join(err, scheduler.Shutdown())
	}
	scheduler.Start()
	<-ctx.Done()
	return errors.Join(scheduler.Shutdown(), election.Close()) // in this order
}

// hourly runs report once per hour, on one of the hosts.
func hourly(scheduler gocron.Scheduler, client *recipes.Client, report func(context.Context, *recipes.Lease) error) error {
	o, err := once.New(client, "/jobs/report")
	if err != nil {
		return err
	}
	task := gocronzkrecipes.OnceTask(o, time.Hour, report)
	_, err = scheduler.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(task))
	return err
}

func TestNightly(t *testing.T) {
	testkit.BubbleFor(t, 5*time.Hour, func(t *testing.T) { // begins at midnight UTC
		server := zktest.NewServer(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		var ran runs
		for host := range 2 {
			client := zkclient.Connect(t, server)
			go func() { // ends with ctx
				ended <- nightly(ctx, client, func(context.Context, *recipes.Lease) error { ran.add(host); return nil })
			}()
		}
		wait(3*time.Hour - time.Second)
		require.Empty(t, ran.take())
		wait(2 * time.Second)
		require.Len(t, ran.take(), 1)
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, <-ended)
		server.RequireIdle(t)
	})
}

func TestHourly(t *testing.T) {
	testkit.BubbleFor(t, 5*time.Hour, func(t *testing.T) {
		server := zktest.NewServer(t)
		var ran runs
		for host := range 2 {
			scheduler, err := gocron.NewScheduler()
			require.NoError(t, err)
			client := zkclient.Connect(t, server)
			require.NoError(t, hourly(scheduler, client, func(context.Context, *recipes.Lease) error { ran.add(host); return nil }))
			scheduler.Start()
			defer func() { require.NoError(t, scheduler.Shutdown()) }()
		}
		wait(3*time.Hour + time.Second)
		require.Len(t, ran.take(), 3)
	})
}

func TestOnceTaskOfNightlyJob(t *testing.T) {
	testkit.BubbleFor(t, 30*time.Hour, func(t *testing.T) {
		server := zktest.NewServer(t)
		var ran runs
		for host := range 2 {
			scheduler, err := gocron.NewScheduler(gocron.WithLocation(time.UTC))
			require.NoError(t, err)
			o, err := once.New(zkclient.Connect(t, server), "/jobs/report")
			require.NoError(t, err)
			task := gocronzkrecipes.OnceTask(o, 24*time.Hour, func(context.Context, *recipes.Lease) error { ran.add(host); return nil })
			_, err = scheduler.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(task))
			require.NoError(t, err)
			scheduler.Start()
			defer func() { require.NoError(t, scheduler.Shutdown()) }()
		}
		wait(3*time.Hour + time.Second)
		require.Len(t, ran.take(), 1)
		wait(24 * time.Hour)
		require.Len(t, ran.take(), 1, "the next night")
	})
}
