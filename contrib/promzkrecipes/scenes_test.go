package promzkrecipes_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/contrib/promzkrecipes"
	"github.com/zkrecipes/zkrecipes/internal/testkit/scenes"
)

// The metrics in each scene are those of the other modules.
func TestScenes(t *testing.T) {
	scenes.RunMetrics(t, func(tb testing.TB) scenes.Reporter {
		tb.Helper()
		collector, registry := promzkrecipes.New(), prometheus.NewPedanticRegistry()
		require.NoError(tb, registry.Register(collector))
		return scenes.Reporter{
			Trace:   collector.Trace(),
			Observe: collector.Observe,
			Read: func(add func(string, map[string]string, float64)) {
				families, err := registry.Gather()
				require.NoError(tb, err)
				for _, family := range families {
					for _, m := range family.GetMetric() {
						labels := map[string]string{}
						for _, label := range m.GetLabel() {
							labels[label.GetName()] = label.GetValue()
						}
						add(family.GetName(), labels, m.GetCounter().GetValue()+m.GetGauge().GetValue()+float64(m.GetHistogram().GetSampleCount()))
					}
				}
			},
		}
	})
}
