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
	fence    = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	anyFence = regexp.MustCompile("(?ms)^```.*?^```$")
	word     = regexp.MustCompile(`\S*[\pL\pN]\S*`)
)

// Each block of Go in the README and in docs is a part of a file of examples, so it compiles.
func TestDocumentsQuoteTheCode(t *testing.T) {
	var sources []string
	for _, pattern := range []string{"*.go", "../elections/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			sources = append(sources, "\n"+string(source))
		}
	}
	documents, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	quotes := 0
	for _, document := range append(documents, "../../README.md") {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
			require.True(t, slices.ContainsFunc(sources, func(source string) bool { return isPart(source, block[1]) }),
				"%s has a block that is in no file of examples/snippets:\n%s", document, block[1])
			quotes++
		}
	}
	require.NotZero(t, quotes)
}

// The README and the pages for users can be read in an hour. Details belong in docs/evidence.
func TestPagesForUsersAreShort(t *testing.T) {
	const limit = 12_000 // words, without code
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	words := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		words += len(word.FindAllString(anyFence.ReplaceAllString(string(text), ""), -1))
	}
	require.Less(t, words, limit)
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
