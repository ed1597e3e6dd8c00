package promzkrecipes_test

import (
	"context"
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/zkrecipes/zkrecipes/contrib/promzkrecipes"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// measured does the work on an order under a lock.
func measured(ctx context.Context, servers []string, id string, work func(context.Context, *recipes.Lease) error) error {
	collector := promzkrecipes.New()
	prometheus.MustRegister(collector)
	client, err := recipes.Connect(ctx, servers, recipes.WithTrace(collector.Trace()))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	defer collector.Observe(client)() // the gauges of the session
	lock, err := mutex.New(client, "/orders/"+id, mutex.WithName("orders"))
	if err != nil {
		return err
	}
	return lock.Do(ctx, work)
}

func Example() {
	ctx := context.Background()
	server, err := zktest.Start() // in a service, the servers
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	err = measured(ctx, []string{server.Addr()}, "4711", func(context.Context, *recipes.Lease) error {
		n, err := testutil.GatherAndCount(prometheus.DefaultGatherer, "zkrecipes_lock_count")
		fmt.Println("series of zkrecipes_lock_count:", n)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: series of zkrecipes_lock_count: 1
}
