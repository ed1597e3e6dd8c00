package snippets

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var localReplace = regexp.MustCompile(`(?m)^replace (\S+) => (\.\.?/\S*)$`)

// The examples for copying build outside of the repository, tests included: vet type-checks all of it. They have the versions of examples/go.mod, so nothing is
// downloaded.
func TestExamplesCanBeCopied(t *testing.T) {
	for _, example := range []string{"httpshop", "stock", "worker"} {
		t.Run(example, func(t *testing.T) {
			module := t.TempDir()
			require.NoError(t, os.CopyFS(module, os.DirFS(filepath.Join("..", example))))
			sums, err := os.ReadFile("../go.sum")
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(module, "go.sum"), sums, 0o600))
			versions, err := os.ReadFile("../go.mod")
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(module, "go.mod"), versions, 0o600))
			goCommand(t, module, "mod", "edit", "-module=example.com/"+example)
			for _, replace := range localReplace.FindAllStringSubmatch(string(versions), -1) {
				folder, err := filepath.Abs(filepath.Join("..", replace[2]))
				require.NoError(t, err)
				goCommand(t, module, "mod", "edit", "-replace="+replace[1]+"="+folder)
			}
			goCommand(t, module, "mod", "tidy", "-e") // -e, because not every test of a dependency can be resolved offline
			goCommand(t, module, "vet", ".")
			goCommand(t, module, "vet", "-tags=integration", ".")
		})
	}
}

// goCommand runs the go command in a module that is not part of the workspace, and without the Internet.
func goCommand(t *testing.T, module string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir = module
	command.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=-mod=mod")
	out, err := command.CombinedOutput()
	require.NoError(t, err, "go %v\n%s", args, out)
}

// An example for copying can't import what it shares with another one, so the file exists twice.
func TestSharedFileIsTheSame(t *testing.T) {
	stock, err := os.ReadFile("../stock/sql.go")
	require.NoError(t, err)
	worker, err := os.ReadFile("../worker/sql.go")
	require.NoError(t, err)
	require.Equal(t, string(stock), string(worker))
}
