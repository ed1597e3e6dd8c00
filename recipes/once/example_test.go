package once_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// newHosts returns two clients of a ZooKeeper in this process, one per simulated host, and a function that closes everything.
// A service would call recipes.Connect with its servers.
func newHosts() (first, second *recipes.Client, stop func()) {
	server, err := zktest.Start()
	if err != nil {
		log.Fatal(err)
	}
	connect := func(id string) *recipes.Client {
		client, err := recipes.Connect(context.Background(), []string{server.Addr()}, recipes.WithID(id))
		if err != nil {
			log.Fatal(err)
		}
		return client
	}
	first, second = connect("web-1"), connect("web-2")
	return first, second, func() { _ = errors.Join(first.Close(), second.Close(), server.Close()) }
}

// Two hosts have the same schedule. One of them makes the report.
func Example() {
	first, second, stop := newHosts()
	defer stop()
	tick := once.At(time.Date(2026, 11, 26, 3, 0, 0, 0, time.UTC)) // in a service: once.Tick(time.Now(), time.Hour)

	for _, client := range []*recipes.Client{first, second} {
		o, err := once.New(client, "/jobs/report")
		if err != nil {
			log.Fatal(err)
		}
		err = o.Do(context.Background(), tick, func(context.Context, *recipes.Lease) error {
			fmt.Println("reporting") // until ctx ends at the latest
			return nil
		})
		switch done, isDone := zkutil.AsType[*once.DoneError](err); {
		case isDone:
			fmt.Println("already done by", done.Last.ID)
		case err != nil:
			log.Fatal(err)
		}
	}
	// Output:
	// reporting
	// already done by web-1
}

// At most once: a failed run is not repeated. WithRetry repeats it.
func ExampleWithRetry() {
	client, _, stop := newHosts()
	defer stop()
	o, err := once.New(client, "/jobs/import", once.WithRetry())
	if err != nil {
		log.Fatal(err)
	}

	attempt := 0
	load := func(context.Context, *recipes.Lease) error {
		if attempt++; attempt == 1 {
			return errors.New("no connection to the warehouse")
		}
		return nil
	}
	for range 3 {
		fmt.Println(o.Do(context.Background(), "build-1", load) == nil, attempt)
	}
	// Output:
	// false 1
	// true 2
	// false 2
}

// Who has run the latest occurrence, and how did that end?
func ExampleOnce_Last() {
	client, _, stop := newHosts()
	defer stop()
	o, err := once.New(client, "/jobs/import")
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	_ = o.Do(ctx, "build-1", func(context.Context, *recipes.Lease) error { return errors.New("disk full") })

	last, err := o.Last(ctx)
	fmt.Println(last.Occurrence, last.ID, last.Finished, last.Failure, err)
	// Output:
	// build-1 web-1 false disk full <nil>
}

// A host whose timer fires 2 ms early names the same tick as one whose timer is late.
func ExampleTick() {
	three := time.Date(2026, 11, 26, 3, 0, 0, 0, time.UTC)
	for _, now := range []time.Time{three.Add(-2 * time.Millisecond), three.Add(7 * time.Second)} { // in a service: time.Now()
		fmt.Println(once.Tick(now, time.Hour))
	}
	// Output:
	// 2026-11-26T03:00:00.000000000Z
	// 2026-11-26T03:00:00.000000000Z
}

// A tick that comes while the run before it is still going on is skipped.
func ExampleWithSkip() {
	first, second, stop := newHosts()
	defer stop()
	job := func(client *recipes.Client) *once.Once {
		o, err := once.New(client, "/jobs/sync", once.WithSkip(), once.WithMaxHold(time.Hour))
		if err != nil {
			log.Fatal(err)
		}
		return o
	}
	three := time.Date(2026, 11, 26, 3, 0, 0, 0, time.UTC)
	err := job(first).Do(context.Background(), once.At(three), func(context.Context, *recipes.Lease) error {
		err := job(second).Do(context.Background(), once.At(three.Add(time.Minute)), func(context.Context, *recipes.Lease) error {
			fmt.Println("not called")
			return nil
		})
		if running, isRunning := zkutil.AsType[*once.RunningError](err); isRunning {
			fmt.Println("skipped: running on", running.Last.ID)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// skipped: running on web-1
	// <nil>
}

// A job that fails runs again on the next host, a pause later, three times in all.
func ExampleWithMaxRuns() {
	first, second, stop := newHosts()
	defer stop()
	for _, client := range []*recipes.Client{first, second, first, second} {
		o, err := once.New(client, "/jobs/import", once.WithRetryPause(50*time.Millisecond), once.WithMaxRuns(3))
		if err != nil {
			log.Fatal(err)
		}
		err = o.Do(context.Background(), "2026-11-26", func(context.Context, *recipes.Lease) error { return errors.New("no input") })
		switch done, isDone := zkutil.AsType[*once.DoneError](err); {
		case isDone:
			fmt.Printf("given up after %d runs: %s\n", done.Last.Runs, done.Last.Failure)
		default:
			fmt.Println(err)
		}
	}
	// Output:
	// no input
	// no input
	// no input
	// given up after 3 runs: no input
}
