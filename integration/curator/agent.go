package curator

import (
	"context"
	"embed"
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

// debian is the folder of the machine's own libraries.
const debian = "/usr/share/java"

// folder returns the folder of Curator's libraries: the machine's, or those of the Debian suite in the environment variable ZK.
func folder(ctx context.Context) (string, error) {
	clients, err := image.Clients(ctx, os.Stderr)
	if err != nil {
		return "", fmt.Errorf("curator: %w", err)
	}
	if clients == "" {
		return debian, nil
	}
	return filepath.Join(clients, "java"), nil
}

// jars returns the class path. The manifests of Debian's libraries name what they need, by absolute paths: so other libraries than the
// machine's are all named, and go first.
func jars(ctx context.Context) (string, error) {
	dir, err := folder(ctx)
	if err != nil {
		return "", err
	}
	if dir != debian {
		return dir + "/*", nil
	}
	return dir + "/curator-recipes.jar:" + dir + "/slf4j-nop.jar", nil
}

//go:embed *.java
var sources embed.FS

// Agent is a running Java process. Its methods may be called concurrently.
type Agent = agent.Process

// New starts a process whose clients connect to the servers and ask for the session timeout. It ends with the test.
func New(tb testing.TB, servers []string, sessionTimeout time.Duration) *Agent {
	tb.Helper()
	dir := tb.TempDir()
	cmd, err := command(tb.Context(), dir, servers, sessionTimeout)
	if err != nil {
		tb.Fatal(err)
	}
	return agent.Start(tb, cmd)
}

// Open is New for a process that outlives a test, with its classes in a folder of the same lifetime. The caller has to close
// it.
func Open(ctx context.Context, dir string, servers []string, sessionTimeout time.Duration) (*Agent, error) {
	cmd, err := command(ctx, dir, servers, sessionTimeout)
	if err != nil {
		return nil, err
	}
	return agent.Open(cmd)
}

// Version returns that of the library, as in "5.4.0".
func Version(ctx context.Context) (string, error) {
	dir, err := folder(ctx)
	if err != nil {
		return "", err
	}
	if dir != debian {
		version, err := os.ReadFile(filepath.Join(dir, "version"))
		return strings.TrimSpace(string(version)), err
	}
	const prefix, suffix = "curator-recipes-", ".jar"
	found, err := filepath.Glob(filepath.Join(dir, prefix+"[0-9]*"+suffix))
	if err != nil {
		return "", fmt.Errorf("curator: %w", err)
	}
	if len(found) != 1 {
		return "", fmt.Errorf("curator: %d versions in %s", len(found), dir)
	}
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), prefix), suffix), nil
}

// compile puts the classes into a folder.
func compile(ctx context.Context, dir, classPath string) error {
	args := []string{"-implicit:none", "-d", dir, "-cp", classPath}
	files, err := sources.ReadDir(".")
	if err != nil {
		return fmt.Errorf("curator: %w", err)
	}
	for _, file := range files {
		text, err := sources.ReadFile(file.Name())
		if err != nil {
			return fmt.Errorf("curator: %w", err)
		}
		source := filepath.Join(dir, file.Name())
		if err := os.WriteFile(source, text, 0o600); err != nil {
			return fmt.Errorf("curator: %w", err)
		}
		args = append(args, source)
	}
	if out, err := exec.CommandContext(ctx, "javac", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("curator: javac: %w\n%s", err, out)
	}
	return nil
}

// command compiles the agent into a folder, and returns its command.
func command(ctx context.Context, dir string, servers []string, sessionTimeout time.Duration) (*exec.Cmd, error) {
	classPath, err := jars(ctx)
	if err != nil {
		return nil, err
	}
	if err := compile(ctx, dir, classPath); err != nil {
		return nil, err
	}
	return exec.Command("java", "-Xms256m", "-Xmx1g", "-cp", dir+":"+classPath, "Agent", //nolint:noctx // ends with its input
		strings.Join(servers, ","), strconv.FormatInt(sessionTimeout.Milliseconds(), 10)), nil
}
