package otelzkrecipes

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/zkrecipes/zkrecipes/internal/telemetry"
	"github.com/zkrecipes/zkrecipes/recipes"
)

func (t *Telemetry) stateChange(ctx context.Context, change recipes.StateChange) {
	server := metric.WithAttributes(serverAttributes(change.Server)...)
	switch change.To {
	case recipes.Connected, recipes.Reconnected: // both counters of a server start at 0 when it is reached
		t.metrics.expirations.Add(ctx, 0, server)
		t.metrics.reconnects.Add(ctx, 0, server)
	case recipes.Lost:
		t.metrics.expirations.Add(ctx, 1, server)
	}
	if change.To == recipes.Reconnected { // counted for the server before, whose counter was 0 when it was scraped
		t.metrics.reconnects.Add(ctx, 1, metric.WithAttributes(serverAttributes(change.LostServer)...))
	}
}

// serverAttributes returns the name of a server, its address if it has no name, or nothing without a server.
func serverAttributes(server string) []attribute.KeyValue {
	host := telemetry.ServerName(server)
	if host == "" {
		return nil
	}
	return []attribute.KeyValue{serverKey.String(host)}
}

// Observe reports the session's state and the age of its proof, at each collection, until stop is called. If one
// process has several clients of the same servers, pass attributes that distinguish the clients. Call stop after the
// client is closed; further calls have no effect.
//
// A client without leases and waiters sends no proof, so the age matters only while leases are held.
func (t *Telemetry) Observe(client *recipes.Client, attributes ...attribute.KeyValue) (stop func() error, err error) {
	registration, err := t.meter.RegisterCallback(func(_ context.Context, observer metric.Observer) error {
		health := client.Health()
		set := metric.WithAttributes(append(serverAttributes(health.Server), attributes...)...)
		observer.ObserveInt64(t.metrics.state, telemetry.StateNumber(health.State), set)
		if !health.LastProof.IsZero() {
			observer.ObserveFloat64(t.metrics.proofAge, time.Since(health.LastProof).Seconds(), set)
		}
		return nil
	}, t.metrics.state, t.metrics.proofAge)
	if err != nil {
		return nil, fmt.Errorf("otelzkrecipes: %w", err)
	}
	return registration.Unregister, nil
}
