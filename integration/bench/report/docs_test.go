package report

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/bench/runner"
)

// Each case has its place on the page, or its table would be lost without a word.
func TestPageHasAPlaceForEachCase(t *testing.T) {
	page, err := os.ReadFile("../../../docs/performance.md")
	require.NoError(t, err)
	for _, c := range runner.Cases(false) {
		require.Contains(t, string(page), "<!-- bench "+c.Name+" -->\n")
		require.Contains(t, string(page), "<!-- end "+c.Name+" -->\n")
	}
}
