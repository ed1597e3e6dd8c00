// Package prometheus_test plays the alerts of contrib with promtool, of Debian's package prometheus.
package prometheus_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each alert fires for its reason, and none on a quiet night.
func TestAlertsFire(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		promtool := exec.CommandContext(t.Context(), "promtool", args...)
		promtool.Dir = "../../contrib/otelzkrecipes/prometheus"
		out, err := promtool.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "SUCCESS")
	}
}
