package otelzkrecipes

import (
	"context"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// scope names this package to OpenTelemetry.
const scope = "github.com/zkrecipes/zkrecipes/contrib/otelzkrecipes"

// Telemetry has the instruments. Its trace records events.
type Telemetry struct {
	meter   metric.Meter
	tracer  trace.Tracer
	metrics instruments
	locks   sync.Map // *lock by lockKey
}

type config struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
}

// Option changes a setting of [New].
type Option func(*config)

// WithMeterProvider sets who gets the metrics. The default is the global provider.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(c *config) { c.meters = provider }
}

// WithTracerProvider sets who gets the spans. The default is the global provider.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(c *config) { c.tracers = provider }
}

// New creates the instruments. It returns an error if the meter provider refuses an instrument.
func New(opts ...Option) (*Telemetry, error) {
	c := config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	for _, opt := range opts {
		opt(&c)
	}
	t := &Telemetry{meter: c.meters.Meter(scope), tracer: c.tracers.Tracer(scope)}
	if err := t.metrics.create(t.meter); err != nil {
		return nil, fmt.Errorf("otelzkrecipes: %w", err)
	}
	return t, nil
}

// Trace returns the hooks for [recipes.WithTrace]. Any number of clients may share them.
func (t *Telemetry) Trace() *recipes.Trace {
	return &recipes.Trace{
		AcquireStart: t.acquireStart,
		AcquireEnd:   t.acquireEnd,
		LeaseEnd:     t.leaseEnd,
		StateChange:  func(change recipes.StateChange) { t.stateChange(context.Background(), change) },
	}
}
