package otelzkrecipes_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/zkrecipes/zkrecipes/contrib/otelzkrecipes"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// measured does the work on an order under a lock.
func measured(ctx context.Context, servers []string, id string, work func(context.Context, *recipes.Lease) error) error {
	telemetry, err := otelzkrecipes.New() // the global providers, or WithMeterProvider, WithTracerProvider
	if err != nil {
		return err
	}
	client, err := recipes.Connect(ctx, servers, recipes.WithTrace(telemetry.Trace()))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	stop, err := telemetry.Observe(client) // the gauges of the session
	if err != nil {
		return err
	}
	defer func() { _ = stop() }()
	lock, err := mutex.New(client, "/orders/"+id, mutex.WithName("orders"))
	if err != nil {
		return err
	}
	return lock.Do(ctx, work)
}

// A client is connected with the hooks, and a lock gets a name. A reader, here by hand, sees what is held.
func Example() {
	ctx := context.Background()
	server, err := zktest.Start() // in a service, the servers
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()

	reader := metric.NewManualReader() // in a service, an exporter
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	err = measured(ctx, []string{server.Addr()}, "4711", func(ctx context.Context, _ *recipes.Lease) error {
		return printCounts(ctx, reader)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// zkrecipes.lock.count of orders: 1
	// zkrecipes.lock.pending_requests of orders: 0
}

// printCounts prints counters and up-down counters.
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
