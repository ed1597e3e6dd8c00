package conformance_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/conformance"
)

var kinds = []string{conformance.Extended, conformance.Plain, conformance.Reaping}

func TestCaseFilesAreFormatted(t *testing.T) {
	for _, kind := range kinds {
		files, err := filepath.Glob(filepath.Join("testdata", kind, "*.txt"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			cases, err := conformance.ParseCases(file, string(text))
			require.NoError(t, err)
			require.Equal(t, string(text), conformance.FormatCases(cases), file)
		}
	}
}

func TestCasesHaveUniqueNamesAndAnswers(t *testing.T) {
	for _, kind := range kinds {
		cases, err := conformance.Cases(kind)
		require.NoError(t, err)
		names := map[string]bool{}
		for _, c := range cases {
			name := c.File + "/" + c.Name
			require.NotContains(t, names, name)
			names[name] = true
			require.NotEmpty(t, c.Lines, name)
			for _, line := range c.Lines {
				for _, answer := range line.Answers {
					require.NotContains(t, answer, "!", "%s: %s", name, line.Step)
				}
			}
			require.NotEmpty(t, c.Lines[0].Answers, "%s has never been played", name)
		}
	}
}

func TestParseCasesRejectsMalformedText(t *testing.T) {
	for _, text := range []string{"a connect\n", "== x\n    an answer\n", "== x\na\n"} {
		_, err := conformance.ParseCases("x.txt", text)
		require.ErrorContains(t, err, "x.txt:")
	}
	cases, err := conformance.Cases("none")
	require.NoError(t, err)
	require.Empty(t, cases)
}
