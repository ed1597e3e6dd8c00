package gocronzkrecipes_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/zkrecipes/zkrecipes/contrib/gocronzkrecipes"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// connect returns a client for the servers, as in a service.
func connect(server *zktest.Server) *recipes.Client {
	client, err := recipes.Connect(context.Background(), []string{server.Addr()}, recipes.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	return client
}

// The leader runs all jobs of its scheduler.
func ExampleElector() {
	server, err := zktest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	client := connect(server)
	defer func() { _ = client.Close() }()

	election, err := latch.New(client, "/elections/jobs")
	if err != nil {
		log.Fatal(err)
	}
	elector := gocronzkrecipes.NewElector(election) // before Start
	if err := election.Start(); err != nil {
		log.Fatal(err)
	}
	defer func() { _ = election.Close() }() // after Shutdown of the scheduler
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = scheduler.Shutdown() }()
	ran := make(chan struct{})
	_, err = scheduler.NewJob(
		gocron.DurationJob(100*time.Millisecond),
		gocron.NewTask(elector.Task(func(_ context.Context, term *recipes.Lease) error {
			fmt.Println("the leader runs the job, with a token:", term.FencingToken() > 0)
			close(ran)
			return nil
		})),
		gocron.WithLimitedRuns(1), // for the example
	)
	if err != nil {
		log.Fatal(err)
	}
	<-election.Decided()
	scheduler.Start()
	<-ran
	// Output: the leader runs the job, with a token: true
}

// Two hosts have the same job. Each hour it runs on one of them.
func ExampleOnceTask() {
	server, err := zktest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()

	for range 2 { // hosts
		client := connect(server)
		defer func() { _ = client.Close() }()
		hourly, err := once.New(client, "/jobs/report")
		if err != nil {
			log.Fatal(err)
		}
		scheduler, err := gocron.NewScheduler()
		if err != nil {
			log.Fatal(err)
		}
		defer func() { _ = scheduler.Shutdown() }()
		ended := make(chan struct{})
		job, err := scheduler.NewJob(
			gocron.DurationJob(time.Hour),
			gocron.NewTask(gocronzkrecipes.OnceTask(hourly, time.Hour, func(context.Context, *recipes.Lease) error {
				fmt.Println("report")
				return nil
			})),
			gocron.WithEventListeners(gocron.AfterJobRuns(func(uuid.UUID, string) { close(ended) })),
		)
		if err != nil {
			log.Fatal(err)
		}
		scheduler.Start()
		if err := job.RunNow(); err != nil { // in place of the tick
			log.Fatal(err)
		}
		<-ended
	}
	// Output: report
}
