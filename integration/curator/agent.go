package curator

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// jars is where Debian puts libraries. Their manifests name what they need, but for a logger.
	jars = "/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-nop.jar"
	// patience is how long one command may take.
	patience = time.Minute
)

//go:embed Agent.java
var source []byte

// Agent is a running Java process. Its methods may be called concurrently.
type Agent struct {
	cmd *exec.Cmd

	mu      sync.Mutex // one command at a time
	in      io.WriteCloser
	answers *bufio.Scanner
}

// New starts a process whose clients connect to the servers and ask for the session timeout. It ends with the test.
func New(tb testing.TB, servers []string, sessionTimeout time.Duration) *Agent {
	tb.Helper()
	a, err := start(tb.TempDir(), servers, sessionTimeout)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := a.close(); err != nil {
			tb.Error(err)
		}
	})
	return a
}

func start(dir string, servers []string, sessionTimeout time.Duration) (*Agent, error) {
	file := filepath.Join(dir, "Agent.java")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return nil, fmt.Errorf("curator: %w", err)
	}
	// Java compiles the one file in memory. The process ends with its input: see close.
	cmd := exec.Command("java", "-Xms256m", "-Xmx1g", "-cp", jars, file, //nolint:noctx // see close
		strings.Join(servers, ","), strconv.FormatInt(sessionTimeout.Milliseconds(), 10))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("curator: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("curator: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("curator: %w", err)
	}
	return &Agent{cmd: cmd, in: in, answers: bufio.NewScanner(out)}, nil
}

// Do runs one command, listed in Agent.java, and returns its result. A failure is fatal.
func (a *Agent) Do(tb testing.TB, command ...string) string {
	tb.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	line := strings.Join(command, " ")
	late := time.AfterFunc(patience, func() { _ = a.cmd.Process.Kill() }) // ends the scan below
	defer late.Stop()
	if _, err := fmt.Fprintln(a.in, line); err != nil {
		tb.Fatalf("curator: %s: %v", line, err)
	}
	if !a.answers.Scan() {
		tb.Fatalf("curator: %s: no answer, %v", line, a.answers.Err())
	}
	result, ok := strings.CutPrefix(a.answers.Text(), "ok")
	if !ok {
		tb.Fatalf("curator: %s: %s", line, a.answers.Text())
	}
	return strings.TrimSpace(result)
}

// close lets the process close its sessions and waits for its end.
func (a *Agent) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	late := time.AfterFunc(patience, func() { _ = a.cmd.Process.Kill() })
	defer late.Stop()
	a.in.Close()
	if err := a.cmd.Wait(); err != nil {
		return fmt.Errorf("curator: %w", err)
	}
	return nil
}
