package conformance_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/conformance"
)

var update = flag.Bool("update", false, "write the real server's answers into the files of internal/conformance")

var kinds = []string{conformance.Extended, conformance.Plain, conformance.Reaping}

// The suite contains a real server's answers, and a real server still gives the same answers.
func TestCasesOnARealServer(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			server := start(t, kind)
			if *update {
				rewrite(t, kind, server)
				return
			}
			conformance.Run(t, kind, server)
		})
	}
}

// rewrite plays all files of a kind and writes them with the answers.
func rewrite(t *testing.T, kind string, server conformance.Dial) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "internal", "conformance", "testdata", kind, "*.txt"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		cases, err := conformance.ParseCases(filepath.Base(file), string(text))
		require.NoError(t, err)
		for i, c := range cases {
			cases[i], err = c.Play(server)
			require.NoError(t, err, "%s, %q", c.File, c.Name)
		}
		formatted := conformance.FormatCases(cases)
		require.NotContains(t, formatted, "\n    !", "%s: the harness doesn't understand that server", file)
		require.NoError(t, os.WriteFile(file, []byte(formatted), 0o644))
	}
}
