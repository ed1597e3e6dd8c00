package cli

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/stretchr/testify/require"
)

var writeMan = flag.Bool("write-man", false, "write the man pages, in place of comparing them")

// manDir has the man pages, which the archives of a release contain.
const manDir = "../../man"

// manPages returns the man pages by their file names, made from the help of the commands.
func manPages(t *testing.T) map[string]string {
	t.Helper()
	for _, variable := range os.Environ() { // the defaults of flags
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "ZKR_") {
			t.Setenv(name, "")
		}
	}
	root := newRoot()
	root.DisableAutoGenTag = true
	root.RemoveCommand(find(t, root, "completion"))
	dir := t.TempDir()
	require.NoError(t, doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "zkr", Manual: "zkr", Date: new(time.Time)}, dir))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	pages := map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(dir, file.Name()))
		require.NoError(t, err)
		pages[file.Name()] = string(bytes.Replace(content, []byte(` "Jan 0001" `), []byte(` "" `), 1))
	}
	return pages
}

func find(t *testing.T, root *cobra.Command, name string) *cobra.Command {
	t.Helper()
	for _, c := range root.Commands() {
		if c.Name() == name {
			return c
		}
	}
	require.FailNow(t, "no such command", name)
	return nil
}

// The man pages say what --help says: go test ./cmd/zkr/internal/cli -run TestManPagesAreCurrent -write-man
func TestManPagesAreCurrent(t *testing.T) {
	pages := manPages(t)
	require.Contains(t, pages, "zkr.1")
	require.Contains(t, pages, "zkr-lock.1")
	if *writeMan {
		require.NoError(t, os.RemoveAll(manDir))
		require.NoError(t, os.Mkdir(manDir, 0o755)) //nolint:gosec // it is for everyone
		for name, page := range pages {
			require.NoError(t, os.WriteFile(filepath.Join(manDir, name), []byte(page), 0o644)) //nolint:gosec // it is for everyone
		}
	}
	files, err := os.ReadDir(manDir)
	require.NoError(t, err)
	require.Len(t, files, len(pages), "a page for each command, and no other")
	for name, page := range pages {
		content, err := os.ReadFile(filepath.Join(manDir, name))
		require.NoError(t, err)
		require.Equal(t, page, string(content), "%s is not what --help says: write it anew with -write-man", name)
	}
}
