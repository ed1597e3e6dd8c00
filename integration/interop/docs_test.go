package interop_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/curator"
	"github.com/zkrecipes/zkrecipes/integration/kazoo"
)

// TestDocs checks that docs/interop.md names the installed versions, and that its index of tests names tests that exist.
func TestDocs(t *testing.T) {
	t.Parallel()
	const folder = "../../docs"
	text, err := os.ReadFile(filepath.Join(folder, "interop.md"))
	require.NoError(t, err)
	java, err := curator.Version(t.Context())
	require.NoError(t, err)
	python, err := kazoo.Version(t.Context())
	require.NoError(t, err)
	require.Regexp(t, "(?m)^.*`libcurator-recipes-java`.*[ ,]"+regexp.QuoteMeta(java)+"[ ,]", string(text))
	require.Regexp(t, "(?m)^.*`python3-kazoo`.*[ ,]"+regexp.QuoteMeta(python)+"[ ,]", string(text))
	modules, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`go-zookeeper/zk v(\S+)`).FindSubmatch(modules)
	require.NotNil(t, version)
	require.Contains(t, string(text), "of go-zookeeper/zk | "+string(version[1])+" |")

	agent, err := os.ReadFile("../kazoo/agent.py")
	require.NoError(t, err)
	class := regexp.MustCompile("(?ms)^```python\n(.*?)^```$").FindStringSubmatch(string(text))
	require.NotNil(t, class)
	for line := range strings.Lines(class[1]) {
		require.Contains(t, string(agent), "\n"+line, "a line that the tests with kazoo do not run")
	}

	index, err := os.ReadFile(filepath.Join(folder, "evidence", "interop-tests.md"))
	require.NoError(t, err)
	links := regexp.MustCompile(`\[(Test\w+)\]\(([^)]*)\)`).FindAllStringSubmatch(string(index), -1)
	require.NotEmpty(t, links)
	for _, link := range links {
		source, err := os.ReadFile(filepath.Join(folder, "evidence", link[2]))
		require.NoError(t, err, link[0])
		require.Contains(t, string(source), "func "+link[1]+"(t *testing.T)", link[0])
	}
}
