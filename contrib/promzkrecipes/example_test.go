package promzkrecipes_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/zkrecipes/zkrecipes/contrib/promzkrecipes"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func Example() {
	ctx := context.Background()
	server, err := zktest.Start() // in a service: the servers
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	collector := promzkrecipes.New()
	registry := prometheus.NewRegistry() // or prometheus.MustRegister(collector)
	registry.MustRegister(collector)
	client, err := recipes.Connect(ctx, []string{server.Addr()}, recipes.WithTrace(collector.Trace()), recipes.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	defer collector.Observe(client)()
	orders, err := mutex.New(client, "/orders/4711", mutex.WithName("orders"))
	if err != nil {
		log.Fatal(err)
	}
	err = orders.Do(ctx, func(context.Context, *recipes.Lease) error {
		n, err := testutil.GatherAndCount(registry, "zkrecipes_lock_count")
		fmt.Println("series of zkrecipes_lock_count:", n)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: series of zkrecipes_lock_count: 1
}
