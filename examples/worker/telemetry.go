package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/zkrecipes/zkrecipes/contrib/otelzkrecipes"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// telemetry exports metrics of a worker to Prometheus: the election and the session, measured by package
// otelzkrecipes, and the writes refused by the database.
type telemetry struct {
	*otelzkrecipes.Telemetry

	handler  http.Handler // of /metrics
	provider *sdk.MeterProvider
	stale    metric.Int64Counter
}

func newTelemetry(ctx context.Context) (*telemetry, error) {
	registry := prometheus.NewRegistry() // not the global one, because a process may have several workers
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	t := &telemetry{
		handler:  promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		provider: sdk.NewMeterProvider(sdk.WithReader(reader)),
	}
	var counterErr error
	t.Telemetry, err = otelzkrecipes.New(otelzkrecipes.WithMeterProvider(t.provider))
	t.stale, counterErr = t.provider.Meter("worker").Int64Counter("worker.stale_writes",
		metric.WithDescription("Writes that the database has refused, because a later leader had claimed the job."))
	if err := errors.Join(err, counterErr); err != nil {
		return nil, errors.Join(err, t.close(ctx))
	}
	t.stale.Add(ctx, 0) // so that the first refusal is an increase
	return t, nil
}

// countStale counts a write that was refused. A worker without telemetry counts nothing.
func (t *telemetry) countStale(ctx context.Context) {
	if t != nil {
		t.stale.Add(ctx, 1)
	}
}

func (t *telemetry) close(ctx context.Context) error {
	return t.provider.Shutdown(context.WithoutCancel(ctx))
}

// isReady reports whether a worker is useful: while it is connected, and for a third of the session timeout without a
// connection, so that a rolling restart of the servers takes no worker out of service.
func isReady(h recipes.Health) bool {
	return h.State == recipes.Connected ||
		h.State == recipes.Suspended && time.Since(h.Since) < h.SessionTimeout/3
}

// serveHealth is for a readiness check. A worker that waits for leadership is ready.
func (p *page) serveHealth(w http.ResponseWriter, _ *http.Request) {
	h := p.health()
	if !isReady(h) {
		http.Error(w, fmt.Sprintf("%v for %v: %v", h.State, time.Since(h.Since).Round(time.Millisecond), h.Err), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}
