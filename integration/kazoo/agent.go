package kazoo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/image"
	"github.com/zkrecipes/zkrecipes/integration/interop/agent"
)

// pythons are tried in this order, and the first that can import kazoo is used.
var pythons = []string{"python3", "/usr/bin/python3"}

//go:embed agent.py
var source []byte

// Agent is a running Python process. Its methods may be called concurrently.
type Agent = agent.Process

// New starts a process whose clients connect to the servers and ask for the session timeout. It ends with the test.
func New(tb testing.TB, servers []string, sessionTimeout time.Duration) *Agent {
	tb.Helper()
	cmd, err := command(tb.Context(), tb.TempDir(), servers, sessionTimeout)
	if err != nil {
		tb.Fatal(err)
	}
	return agent.Start(tb, cmd)
}

// Open is New for a process that outlives a test, with its program in a folder of the same lifetime. The caller has to close
// it.
func Open(ctx context.Context, dir string, servers []string, sessionTimeout time.Duration) (*Agent, error) {
	cmd, err := command(ctx, dir, servers, sessionTimeout)
	if err != nil {
		return nil, err
	}
	return agent.Open(cmd)
}

// Version returns what the agent's Python says of kazoo.
func Version(ctx context.Context) (string, error) {
	env, err := environment(ctx)
	if err != nil {
		return "", err
	}
	_, version, err := python(ctx, env)
	return version, err
}

// environment returns the agent's environment, with the kazoo of the Debian suite named by ZK if it is not the
// machine's.
func environment(ctx context.Context) ([]string, error) {
	clients, err := image.Clients(ctx, os.Stderr)
	switch {
	case err != nil:
		return nil, fmt.Errorf("kazoo: %w", err)
	case clients == "":
		return os.Environ(), nil
	}
	return append(os.Environ(), "PYTHONPATH="+filepath.Join(clients, "python")), nil
}

// python finds an interpreter that has kazoo.
func python(ctx context.Context, env []string) (path, version string, err error) {
	failures := []error{errors.New("kazoo: no Python has it (python3-kazoo)")}
	for _, path := range pythons {
		cmd := exec.CommandContext(ctx, path, "-c", "import kazoo; print(kazoo.__version__)")
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err == nil {
			return path, strings.TrimSpace(string(out)), nil
		}
		failures = append(failures, fmt.Errorf("%s: %w\n%s", path, err, out))
	}
	return "", "", errors.Join(failures...)
}

func command(ctx context.Context, dir string, servers []string, sessionTimeout time.Duration) (*exec.Cmd, error) {
	env, err := environment(ctx)
	if err != nil {
		return nil, err
	}
	path, _, err := python(ctx, env)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "agent.py")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return nil, fmt.Errorf("kazoo: %w", err)
	}
	cmd := exec.Command(path, file, strings.Join(servers, ","), //nolint:noctx // ends with its input
		strconv.FormatInt(sessionTimeout.Milliseconds(), 10))
	cmd.Env = env
	return cmd, nil
}
