package otelzkrecipes_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/zkrecipes/zkrecipes/contrib/otelzkrecipes"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A client is connected with the hooks, and a lock gets a name. A reader, here by hand, sees what is held.
func Example() {
	ctx := context.Background()
	server, err := zktest.Start() // in a service: the servers
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()

	reader := metric.NewManualReader() // in a service: an exporter
	telemetry, err := otelzkrecipes.New(otelzkrecipes.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	if err != nil {
		log.Fatal(err)
	}
	client, err := recipes.Connect(ctx, []string{server.Addr()}, recipes.WithTrace(telemetry.Trace()))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	stop, err := telemetry.Observe(client)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = stop() }()

	lock, err := mutex.New(client, "/orders/4711", mutex.WithName("orders"))
	if err != nil {
		log.Fatal(err)
	}
	err = lock.Do(ctx, func(ctx context.Context, _ *recipes.Lease) error {
		return printCounts(ctx, reader)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// zkrecipes.lock.count of orders: 1
	// zkrecipes.lock.pending_requests of orders: 0
}

// printCounts prints what goes up and down.
func printCounts(ctx context.Context, reader metric.Reader) error {
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &collected); err != nil {
		return err
	}
	for _, m := range collected.ScopeMetrics[0].Metrics {
		counts, ok := m.Data.(metricdata.Sum[int64])
		if !ok || counts.IsMonotonic {
			continue
		}
		for _, point := range counts.DataPoints {
			name, _ := point.Attributes.Value("zkrecipes.lock.name")
			fmt.Printf("%s of %s: %d\n", m.Name, name.AsString(), point.Value)
		}
	}
	return nil
}
