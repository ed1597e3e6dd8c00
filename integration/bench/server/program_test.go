package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// envParent makes this program one that starts another one and is killed.
const envParent = "ZKRECIPES_BENCH_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(envParent) != "" {
		beParent()
	}
	goleak.VerifyTestMain(m)
}

var errRefused = errors.New("refused")

// shell is a program that serves at once, and runs a shell script. It records the folder.
func shell(script string, dir *string) Launch {
	return Launch{
		Name: "shell",
		Command: func(ctx context.Context, d, _ string) (*exec.Cmd, error) {
			*dir = d
			cmd := exec.CommandContext(ctx, "sh", "-c", script)
			cmd.Dir = d
			return cmd, nil
		},
		Serves: func(context.Context, string) error { return nil },
	}
}

const sleeps = "exec sleep 600"

func TestProgramEndsWithItsFolder(t *testing.T) {
	var dir string
	p, err := StartProgram(t.Context(), shell(sleeps, &dir))
	require.NoError(t, err)
	require.DirExists(t, dir)
	require.NoError(t, p.early())
	require.NoError(t, p.Close())
	require.Error(t, p.early())
	require.NoDirExists(t, dir)
}

// The end of the context ends no program: its clients close their sessions first.
func TestProgramOutlivesItsContext(t *testing.T) {
	var dir string
	ctx, cancel := context.WithCancel(t.Context())
	p, err := StartProgram(ctx, shell(sleeps, &dir))
	require.NoError(t, err)
	cancel()
	require.NoError(t, p.Close(), "it has not ended by itself")
}

func TestProgramIsNotAwaitedAfterTheContext(t *testing.T) {
	var dir string
	ctx, cancel := context.WithCancelCause(t.Context())
	l := shell(sleeps, &dir)
	enough := errors.New("enough")
	l.Serves = func(context.Context, string) error {
		cancel(enough)
		return errRefused
	}
	_, err := StartProgram(ctx, l)
	require.ErrorIs(t, err, enough)
	require.NoDirExists(t, dir)
}

// StartProgram does not wait for a program that ends at its start, and returns the reason.
func TestProgramThatEndsDoesNotServe(t *testing.T) {
	var dir string
	l := shell("echo the port is taken >&2; exit 1", &dir)
	l.Serves = func(context.Context, string) error { return errRefused }
	_, err := StartProgram(t.Context(), l)
	require.ErrorContains(t, err, "the port is taken")
	require.NoDirExists(t, dir)
}

// A server that ends under load does not count as closed.
func TestProgramThatEndsLater(t *testing.T) {
	var dir string
	p, err := StartProgram(t.Context(), shell("until [ -e end ]; do sleep 0.01; done; echo out of memory >&2; exit 3", &dir))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o600))
	testkit.Eventually(t, func() bool { return p.early() != nil }, "the end")
	require.ErrorContains(t, p.Close(), "out of memory")
	require.NoDirExists(t, dir)
}

func TestProgramThatIsMissing(t *testing.T) {
	var dir string
	l := shell("", &dir)
	l.Command = func(ctx context.Context, d, _ string) (*exec.Cmd, error) {
		dir = d
		return exec.CommandContext(ctx, "no-such-program"), nil
	}
	_, err := StartProgram(t.Context(), l)
	require.ErrorIs(t, err, exec.ErrNotFound)
	require.NoDirExists(t, dir)
}

func TestProgramThatCannotBePrepared(t *testing.T) {
	var dir string
	l := shell("", &dir)
	l.Command = func(_ context.Context, d, _ string) (*exec.Cmd, error) {
		dir = d
		return nil, errRefused
	}
	_, err := StartProgram(t.Context(), l)
	require.ErrorIs(t, err, errRefused)
	require.NoDirExists(t, dir)
}

// beParent prints the process number of a program, and waits to be killed.
func beParent() {
	var dir string
	if _, err := StartProgram(context.Background(), shell("echo $$ >/proc/$PPID/fd/3; "+sleeps, &dir)); err != nil {
		panic(err)
	}
	select {}
}

func TestProgramDoesNotOutliveThisProcess(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	self, err := os.Executable()
	require.NoError(t, err)
	parent := exec.CommandContext(t.Context(), self)
	parent.Env = append(os.Environ(), envParent+"=1", "TMPDIR="+t.TempDir())
	parent.ExtraFiles = []*os.File{write}
	require.NoError(t, parent.Start())
	require.NoError(t, write.Close())
	line, err := bufio.NewReader(read).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	status := fmt.Sprintf("/proc/%s/status", strings.TrimSpace(line))
	testkit.Eventually(t, func() bool {
		text, err := os.ReadFile(status)
		return errors.Is(err, os.ErrNotExist) || strings.Contains(string(text), "State:\tZ")
	}, "the end of the program")
}
