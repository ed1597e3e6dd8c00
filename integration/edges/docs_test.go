package edges_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	testLink  = regexp.MustCompile(`\[((?:Test|Fuzz|Benchmark)\w+)\]\(([^)#]+)\)`)
	fileLink  = regexp.MustCompile(`\]\(([^):#]+)\)`)
	guarantee = regexp.MustCompile(`(?m)^\*\*(\d+)\. `)
	bullet    = regexp.MustCompile(`(?m)^- `)
)

const root = "../.." // of the repository

// Every test that a document names exists in the file that it links to, and so does
// every file.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	documents, err := filepath.Glob(root + "/docs/*.md")
	require.NoError(t, err)
	top, err := filepath.Glob(root + "/*.md")
	require.NoError(t, err)
	named := 0
	for _, document := range append(documents, top...) {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, link := range fileLink.FindAllStringSubmatch(string(text), -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(document), link[1]))
			require.NoError(t, err, document)
		}
		for _, link := range testLink.FindAllStringSubmatch(string(text), -1) {
			source, err := os.ReadFile(filepath.Join(filepath.Dir(document), link[2]))
			require.NoError(t, err, document)
			require.Contains(t, string(source), "\nfunc "+link[1]+"(", "%s names it in %s", document, link[2])
			named++
		}
	}
	t.Logf("%d tests are named", named)
}

// Each guarantee and each line of SECURITY.md has a test beside it.
func TestEachPromiseNamesItsTest(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/guarantees.md")
	require.NoError(t, err)
	promises, _, found := strings.Cut(string(text), "\n## What nobody can promise")
	require.True(t, found)
	starts := guarantee.FindAllStringIndex(promises, -1)
	require.Len(t, starts, 12)
	for i, start := range starts {
		end := len(promises)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		require.Regexp(t, testLink, promises[start[0]:end])
	}
	text, err = os.ReadFile(root + "/SECURITY.md")
	require.NoError(t, err)
	_, lines, _ := strings.Cut(string(text), "\n\nZooKeeper trusts")
	for _, line := range bullet.Split(lines, -1)[1:] {
		require.Regexp(t, testLink, line)
	}
}
