package snippets

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	anyFence   = regexp.MustCompile("(?ms)^```.*?^```$")
	logSection = regexp.MustCompile("(?m)^## The log$(\n([^#].*)?)*")
	function   = regexp.MustCompile(`(?m)^func (\w+)`)
	call       = regexp.MustCompile(`\b(\w+)\(`)
	word       = regexp.MustCompile(`\S*[\pL\pN]\S*`)
)

// Each block of Go in the README and in docs is a part of a file of examples, so it compiles. A block in the README of a module below contrib
// is a part of a file of that module.
func TestDocumentsQuoteTheCode(t *testing.T) {
	documents, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	sources := sourcesOf(t, "*.go", "../elections/*.go", "../quickstart/main.go")
	for _, document := range append(documents, "../../README.md") {
		requireQuotes(t, document, sources)
	}
	modules, err := filepath.Glob("../../contrib/*/README.md")
	require.NoError(t, err)
	require.NotEmpty(t, modules)
	for _, document := range modules {
		requireQuotes(t, document, sourcesOf(t, filepath.Dir(document)+"/*.go"))
	}
}

func sourcesOf(t *testing.T, patterns ...string) (sources []string) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			sources = append(sources, "\n"+string(source))
		}
	}
	return sources
}

// requireQuotes requires that each block of Go in a document is a part of one of the sources, and that each other block names its language, so
// that no Go is left out.
func requireQuotes(t *testing.T, document string, sources []string) {
	t.Helper()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	for _, block := range anyFence.FindAllString(string(text), -1) {
		language, code, _ := strings.Cut(strings.TrimSuffix(block, "```"), "\n")
		if language != "```go" {
			require.Contains(t, []string{"```", "```sh", "```cron", "```json", "```python", "```sql", "```yaml"}, language, document)
			require.NotContains(t, code, ":=", "%s has Go in a block of another language", document)
			continue
		}
		require.True(t, slices.ContainsFunc(sources, func(source string) bool { return isPart(source, code) }),
			"%s has a block that is in no file of Go beside it:\n%s", document, code)
	}
	require.NotContains(t, anyFence.ReplaceAllString(string(text), ""), "```", "%s has a block that is indented, or has no end", document)
}

// Each function quoted in the documents is called, by a test or by another function.
func TestSnippetsAreRun(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	calls := map[string]int{}
	var functions []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range call.FindAllStringSubmatch(string(source), -1) {
			calls[name[1]]++
		}
		for _, name := range function.FindAllStringSubmatch(string(source), -1) {
			functions = append(functions, name[1])
		}
	}
	require.NotEmpty(t, functions)
	for _, name := range functions {
		require.True(t, strings.HasPrefix(name, "Test") || calls[name] > 1, "nothing calls %s", name)
	}
}

// The README and the pages for users can be read in an hour. Details belong in docs/evidence. The section on log records does not count,
// because readers look a record up.
func TestPagesForUsersAreShort(t *testing.T) {
	const limit = 11_000 // words, without code
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	words := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		words += len(word.FindAllString(logSection.ReplaceAllString(anyFence.ReplaceAllString(string(text), ""), ""), -1))
	}
	require.Less(t, words, limit)
	t.Logf("%d words", words)
}

// Evidence names what was tested, the commands, and the results. It has no history.
func TestEvidenceIsShort(t *testing.T) {
	const limit = 8_000 // words, without the bars of tables
	pages, err := filepath.Glob("../../docs/evidence/*.md")
	require.NoError(t, err)
	words := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		words += len(word.FindAllString(string(text), -1))
	}
	require.NotZero(t, words)
	require.LessOrEqual(t, words, limit)
	t.Logf("%d words", words)
}

// isPart reports whether source has the lines of block, at any one indentation.
func isPart(source, block string) bool {
	for depth := range 6 {
		indent := strings.Repeat("\t", depth)
		var quoted strings.Builder
		quoted.WriteString("\n")
		for line := range strings.Lines(block) {
			if line != "\n" {
				quoted.WriteString(indent)
			}
			quoted.WriteString(line)
		}
		if strings.Contains(source, quoted.String()) {
			return true
		}
	}
	return false
}
