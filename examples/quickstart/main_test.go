package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The README begins with the whole program.
func TestReadmeQuotesTheProgram(t *testing.T) {
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	before, _, found := strings.Cut(string(readme), "```go\n"+string(program)+"```\n")
	require.True(t, found, "README.md and examples/quickstart/main.go have drifted apart")
	require.Less(t, strings.Count(before, "\n"), 25, "lines before the program")
	require.LessOrEqual(t, strings.Count(string(program), "\n"), 30, "lines of the program")
	require.LessOrEqual(t, len(strings.Fields(string(readme))), 900, "words of the README")
}

// The program runs as it stands, except for the address.
func TestProgram(t *testing.T) {
	server := zktest.NewServer(t)
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	source := strings.Replace(string(program), "127.0.0.1:2181", server.Addr(), 1)
	require.NotEqual(t, string(program), source)
	copied := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(copied, []byte(source), 0o600))
	original, err := filepath.Abs("main.go")
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: copied}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(file, overlay, 0o600))

	out, err := exec.CommandContext(t.Context(), "go", "run", "-overlay", file, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Regexp(t, `locked; fencing token: \d+\n`, string(out))
	server.RequireIdle(t)
}
