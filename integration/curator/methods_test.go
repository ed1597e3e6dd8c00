package curator

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	method   = regexp.MustCompile(`(?m)^  public [^(]*?(\w+)\(.*\).*;$`)
	fence    = regexp.MustCompile("(?ms)^```.*?^```$")
	code     = regexp.MustCompile("`[^`]*`")
	codeWord = regexp.MustCompile(`\w+`)
)

// classes are those that docs/from-curator.md covers.
var classes = []string{
	"CuratorFrameworkFactory$Builder",
	"recipes.locks.InterProcessMutex", "recipes.locks.InterProcessSemaphoreMutex", "recipes.locks.InterProcessReadWriteLock",
	"recipes.locks.InterProcessSemaphoreV2", "recipes.locks.InterProcessMultiLock", "recipes.locks.Lease", "recipes.locks.Revoker",
	"recipes.leader.LeaderLatch", "recipes.leader.LeaderSelector", "recipes.nodes.GroupMember", "recipes.nodes.PersistentNode",
}

// docs/from-curator.md has every public method of these classes.
func TestPageHasTheMethodsOfCurator(t *testing.T) {
	page, err := os.ReadFile("../../docs/from-curator.md")
	require.NoError(t, err)
	listed := map[string]bool{}
	for _, span := range code.FindAllString(fence.ReplaceAllString(string(page), ""), -1) {
		for _, name := range codeWord.FindAllString(span, -1) {
			listed[name] = true
		}
	}
	classPath, err := jars(t.Context())
	require.NoError(t, err)
	args := []string{"-public", "-cp", frameworkBeside(classPath)}
	for _, class := range classes {
		args = append(args, "org.apache.curator.framework."+class)
	}
	out, err := exec.CommandContext(t.Context(), "javap", args...).CombinedOutput()
	require.NoError(t, err, string(out))
	outputs := strings.Split(string(out), "Compiled from")[1:]
	require.Len(t, outputs, len(classes))
	for i, class := range classes {
		methods := method.FindAllStringSubmatch(outputs[i], -1)
		require.NotEmpty(t, methods, class)
		for _, m := range methods {
			isGetterOfBuilder := strings.HasSuffix(class, "Builder") && strings.HasPrefix(m[1], "get")
			isConstructor := strings.HasSuffix(class, m[1])
			require.True(t, listed[m[1]] || isGetterOfBuilder || isConstructor, "the page lacks %s.%s", class, m[1])
		}
	}
}

// frameworkBeside adds the jar of the framework. Unlike java, javap does not read the manifest that names it.
func frameworkBeside(classPath string) string {
	return classPath + ":" + strings.Replace(classPath, "curator-recipes.jar", "curator-framework.jar", 1)
}
