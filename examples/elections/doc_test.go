package elections

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// code returns a file of this package without its package clause and imports.
func code(t *testing.T, file string) string {
	t.Helper()
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(source), "\n)\n\n")
	require.True(t, found, "%s has no imports", file)
	return rest
}

// The document quotes every file of the package, whole and as it is.
func TestDocumentQuotesTheCode(t *testing.T) {
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "from-others.md"))
	require.NoError(t, err)
	quotes := regexp.MustCompile("(?s)\\[`examples/elections/(\\w+\\.go)`\\]\\(\\.\\./examples/elections/(\\w+\\.go)\\):\n\n```go\n(.*?)```\n").
		FindAllStringSubmatch(string(document), -1)
	quoted := map[string]bool{}
	for _, q := range quotes {
		require.Equal(t, q[1], q[2])
		require.Equal(t, code(t, q[1]), q[3], "docs/from-others.md and examples/elections/%s have drifted apart", q[1])
		quoted[q[1]] = true
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if file != "doc.go" && !strings.HasSuffix(file, "_test.go") {
			require.True(t, quoted[file], "docs/from-others.md does not quote %s", file)
		}
	}
}
