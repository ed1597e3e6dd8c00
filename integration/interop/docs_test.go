package interop_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/curator"
	"github.com/zkrecipes/zkrecipes/integration/kazoo"
)

// TestDocs makes sure that docs/interop.md names the versions that are here, and tests that exist.
func TestDocs(t *testing.T) {
	t.Parallel()
	const folder = "../../docs"
	text, err := os.ReadFile(filepath.Join(folder, "interop.md"))
	require.NoError(t, err)
	java, err := curator.Version()
	require.NoError(t, err)
	python, err := kazoo.Version(t.Context())
	require.NoError(t, err)
	require.Contains(t, string(text), "(`libcurator-recipes-java`) | "+java+" |")
	require.Contains(t, string(text), "(`python3-kazoo`) | "+python+" |")
	modules, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`go-zookeeper/zk v(\S+)`).FindSubmatch(modules)
	require.NotNil(t, version)
	require.Contains(t, string(text), "of go-zookeeper/zk | "+string(version[1])+" |")

	links := regexp.MustCompile(`\[(Test\w+)\]\(([^)]*)\)`).FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, links)
	for _, link := range links {
		source, err := os.ReadFile(filepath.Join(folder, link[2]))
		require.NoError(t, err, link[0])
		require.Contains(t, string(source), "func "+link[1]+"(t *testing.T)", link[0])
	}
}
