package otelzkrecipes_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/zkrecipes/zkrecipes/contrib/otelzkrecipes"
	"github.com/zkrecipes/zkrecipes/internal/testkit/scenes"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// The metrics in each scene are those of the other modules.
func TestScenes(t *testing.T) {
	scenes.RunMetrics(t, func(tb testing.TB) scenes.Reporter {
		tb.Helper()
		reader := metric.NewManualReader()
		telemetry, err := otelzkrecipes.New(otelzkrecipes.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
		require.NoError(tb, err)
		return scenes.Reporter{
			Trace: telemetry.Trace(),
			Observe: func(client *recipes.Client) func() {
				stop, err := telemetry.Observe(client)
				require.NoError(tb, err)
				return func() { require.NoError(tb, stop()) }
			},
			Read: func(add func(string, map[string]string, float64)) {
				var collected metricdata.ResourceMetrics
				require.NoError(tb, reader.Collect(tb.Context(), &collected))
				for _, scope := range collected.ScopeMetrics {
					for _, m := range scope.Metrics {
						eachPoint(m, func(attributes attribute.Set, value float64) {
							labels := map[string]string{}
							for _, a := range attributes.ToSlice() {
								labels[strings.ReplaceAll(string(a.Key), ".", "_")] = a.Value.String()
							}
							add(m.Name, labels, value)
						})
					}
				}
			},
		}
	})
}
