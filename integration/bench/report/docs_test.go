package report

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/bench/runner"
)

// The page has a place for each case. Otherwise the table would be lost silently.
func TestPageHasAPlaceForEachCase(t *testing.T) {
	page, err := os.ReadFile("../../../docs/evidence/performance.md")
	require.NoError(t, err)
	for _, c := range runner.Cases(false) {
		require.Contains(t, string(page), "<!-- bench "+c.Name+" -->\n")
		require.Contains(t, string(page), "<!-- end "+c.Name+" -->\n")
	}
}

// Each number in the table of the page for users is a measured one.
func TestPageForUsersHasTheNumbersOfTheTables(t *testing.T) {
	page, err := os.ReadFile("../../../docs/performance.md")
	require.NoError(t, err)
	evidence, err := os.ReadFile("../../../docs/evidence/performance.md")
	require.NoError(t, err)
	number := regexp.MustCompile(`^ ([\d.,]+)( µs)? $`)
	quoted := 0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		for cell := range strings.SplitSeq(strings.TrimSpace(line), "|") {
			if found := number.FindStringSubmatch(cell); found != nil {
				require.Contains(t, string(evidence), "| "+found[1]+" [", line)
				quoted++
			}
		}
	}
	require.Greater(t, quoted, 20)
}
