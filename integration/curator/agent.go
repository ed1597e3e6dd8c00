package curator

import (
	"cmp"
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

	"github.com/zkrecipes/zkrecipes/integration/interop/agent"
)

// JarsVariable names the folder of another Curator's libraries.
const JarsVariable = "ZKRECIPES_CURATOR"

// folder is where Debian puts libraries, unless JarsVariable says otherwise.
func folder() string { return cmp.Or(os.Getenv(JarsVariable), "/usr/share/java") }

// jars is the class path. The manifests of the libraries name what they need, but for a logger.
func jars() string {
	return filepath.Join(folder(), "curator-recipes.jar") + ":" + filepath.Join(folder(), "slf4j-nop.jar")
}

//go:embed *.java
var sources embed.FS

// Agent is a running Java process. Its methods may be called concurrently.
type Agent = agent.Process

// New starts a process whose clients connect to the servers and ask for the session timeout. It ends with the test.
func New(tb testing.TB, servers []string, sessionTimeout time.Duration) *Agent {
	tb.Helper()
	dir := tb.TempDir()
	if err := compile(tb.Context(), dir); err != nil {
		tb.Fatal(err)
	}
	return agent.Start(tb, command(dir, servers, sessionTimeout))
}

// Open is New for a process that outlives a test, with its classes in a folder that has to last as long. It has to be closed.
func Open(ctx context.Context, dir string, servers []string, sessionTimeout time.Duration) (*Agent, error) {
	if err := compile(ctx, dir); err != nil {
		return nil, err
	}
	return agent.Open(command(dir, servers, sessionTimeout))
}

// Version returns that of the library, as in "5.4.0".
func Version() (string, error) {
	const prefix, suffix = "curator-recipes-", ".jar"
	found, err := filepath.Glob(filepath.Join(folder(), prefix+"[0-9]*"+suffix))
	if err != nil {
		return "", fmt.Errorf("curator: %w", err)
	}
	if len(found) != 1 {
		return "", fmt.Errorf("curator: %d versions in %s", len(found), folder())
	}
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), prefix), suffix), nil
}

// compile puts the classes into a folder.
func compile(ctx context.Context, dir string) error {
	args := []string{"-implicit:none", "-d", dir, "-cp", jars()}
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

func command(dir string, servers []string, sessionTimeout time.Duration) *exec.Cmd {
	return exec.Command("java", "-Xms256m", "-Xmx1g", "-cp", dir+":"+jars(), "Agent", //nolint:noctx // ends with its input
		strings.Join(servers, ","), strconv.FormatInt(sessionTimeout.Milliseconds(), 10))
}
