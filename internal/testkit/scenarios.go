package testkit

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write what scenarios print into their files") //nolint:gochecknoglobals // a flag

// Scenarios plays the scenarios in the files that match a pattern. Behind the line "----" stands what a scenario has to print. No scenario may
// print a VIOLATION.
func Scenarios(t *testing.T, pattern string, play func(scenario string) (printed string, err error)) {
	t.Helper()
	const separator = "----\n"
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			scenario, want, _ := strings.Cut(string(content), separator)
			got, err := play(scenario)
			require.NoError(t, err)
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(scenario+separator+got), 0o644)) //nolint:gosec // a file of the repository
				return
			}
			require.Equal(t, want, got)
			require.NotContains(t, got, "VIOLATION")
		})
	}
}
