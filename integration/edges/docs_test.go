package edges_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	testLink  = regexp.MustCompile(`\[((?:Test|Fuzz|Benchmark)[A-Z]\w*)\]\(([^)#]+)\)`)
	fileLink  = regexp.MustCompile(`\]\(([^):#]*)(?:#([^)]*))?\)`)
	guarantee = regexp.MustCompile(`(?m)^\*\*(\d+\. [^*]+)\.\*\*`)
	bullet    = regexp.MustCompile(`(?m)^- `)
	fence     = regexp.MustCompile("(?ms)^```.*?^```$")
	heading   = regexp.MustCompile(`(?m)^#+ (.*)$`)
	linkText  = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	notAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

const root = "../.." // of the repository

// documents returns the paths of all Markdown files.
func documents(t *testing.T) []string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == ".git" {
			return fs.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			found = append(found, path)
		}
		return err
	}))
	return found
}

// anchors returns the fragments by which GitHub links to the headings of a document.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		title := strings.ToLower(linkText.ReplaceAllString(h[1], "$1"))
		found[strings.ReplaceAll(notAnchor.ReplaceAllString(title, ""), " ", "-")] = true
	}
	return found
}

// Every file and every heading that a document links to exists, and so does every test.
func TestDocumentLinksExist(t *testing.T) {
	named := 0
	for _, document := range documents(t) {
		source, err := os.ReadFile(document)
		require.NoError(t, err)
		text := fence.ReplaceAllString(string(source), "")
		for _, link := range fileLink.FindAllStringSubmatch(text, -1) {
			target := document
			if link[1] != "" {
				target = filepath.Join(filepath.Dir(document), link[1])
			}
			_, err := os.Stat(target)
			require.NoError(t, err, document)
			if link[2] != "" && filepath.Ext(target) == ".md" {
				linked, err := os.ReadFile(target)
				require.NoError(t, err)
				require.Contains(t, anchors(string(linked)), link[2], "%s links to a heading of %s", document, target)
			}
		}
		for _, link := range testLink.FindAllStringSubmatch(text, -1) {
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
	text, err := os.ReadFile(root + "/docs/evidence/guarantees-tests.md")
	require.NoError(t, err)
	promises, _, found := strings.Cut(string(text), "\n## Limits")
	require.True(t, found)
	starts := guarantee.FindAllStringSubmatchIndex(promises, -1)
	require.Len(t, starts, 12)
	var titles []string
	for i, start := range starts {
		end := len(promises)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		require.Regexp(t, testLink, promises[start[0]:end])
		titles = append(titles, promises[start[2]:start[3]])
	}
	page, err := os.ReadFile(root + "/docs/guarantees.md")
	require.NoError(t, err)
	var stated []string
	for _, g := range guarantee.FindAllStringSubmatch(string(page), -1) {
		stated = append(stated, g[1])
	}
	require.Equal(t, stated, titles, "guarantees.md and evidence/guarantees-tests.md have the same guarantees")
	text, err = os.ReadFile(root + "/SECURITY.md")
	require.NoError(t, err)
	_, lines, _ := strings.Cut(string(text), "\n\nZooKeeper trusts")
	for _, line := range bullet.Split(lines, -1)[1:] {
		require.Regexp(t, testLink, line)
	}
}
