package otelzkrecipes_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/contrib/otelzkrecipes"
)

// patience is how long tests wait for something that has to happen.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where clients log
	goleak.VerifyTestMain(m)
}

// probe reads what a Telemetry reports.
type probe struct {
	*testing.T
	*otelzkrecipes.Telemetry
	reader  *metric.ManualReader
	spans   *tracetest.SpanRecorder
	tracers *trace.TracerProvider
}

// newProbe reports to the readers as well.
func newProbe(t *testing.T, readers ...metric.Reader) *probe {
	t.Helper()
	p := &probe{T: t, reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	p.tracers = trace.NewTracerProvider(trace.WithSpanProcessor(p.spans))
	settings := []metric.Option{metric.WithReader(p.reader)}
	for _, reader := range readers {
		settings = append(settings, metric.WithReader(reader))
	}
	telemetry, err := otelzkrecipes.New(
		otelzkrecipes.WithMeterProvider(metric.NewMeterProvider(settings...)), otelzkrecipes.WithTracerProvider(p.tracers))
	require.NoError(t, err)
	p.Telemetry = telemetry
	return p
}

// points are the values of one metric by their attributes, "error.type=timeout,zkrecipes.recipe=mutex".
// For a histogram a value is the number of measurements.
type points map[string]float64

// collect returns all metrics.
func (p *probe) collect() map[string]points {
	p.Helper()
	all := map[string]points{}
	for name, m := range p.metrics() {
		found := points{}
		eachPoint(m, func(attributes attribute.Set, value float64) {
			found[attributes.Encoded(attribute.DefaultEncoder())] = value
		})
		all[name] = found
	}
	return all
}

func (p *probe) metrics() map[string]metricdata.Metrics {
	p.Helper()
	var collected metricdata.ResourceMetrics
	require.NoError(p, p.reader.Collect(p.Context(), &collected))
	all := map[string]metricdata.Metrics{}
	for _, scope := range collected.ScopeMetrics {
		for _, m := range scope.Metrics {
			all[m.Name] = m
		}
	}
	return all
}

func eachPoint(m metricdata.Metrics, visit func(attributes attribute.Set, value float64)) {
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, point := range data.DataPoints {
			visit(point.Attributes, float64(point.Value))
		}
	case metricdata.Gauge[int64]:
		for _, point := range data.DataPoints {
			visit(point.Attributes, float64(point.Value))
		}
	case metricdata.Gauge[float64]:
		for _, point := range data.DataPoints {
			visit(point.Attributes, point.Value)
		}
	case metricdata.Histogram[float64]:
		for _, point := range data.DataPoints {
			visit(point.Attributes, float64(point.Count))
		}
	}
}

// requirePoints compares the nonzero points of a metric.
func (p *probe) requirePoints(name string, want points) {
	p.Helper()
	got := points{}
	for attributes, value := range p.collect()[name] {
		if value != 0 {
			got[attributes] = value
		}
	}
	require.Equal(p, want, got, name)
}

// awaitPoints waits until a metric has the nonzero points.
func (p *probe) awaitPoints(name string, want points) {
	p.Helper()
	require.Eventually(p, func() bool {
		got := p.collect()[name]
		for attributes, value := range got {
			if value != want[attributes] {
				return false
			}
		}
		for attributes := range want {
			if _, ok := got[attributes]; !ok {
				return false
			}
		}
		return true
	}, patience, 5*time.Millisecond, "%s %v", name, want)
}
