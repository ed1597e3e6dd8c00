package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
)

// envAsWithzk makes the test binary be withzk: signals and leftovers need a process of their own.
const envAsWithzk = "WITHZK_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envAsWithzk) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(ensemble.Main(m))
}

const patience = 30 * time.Second

func withzk(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), envAsWithzk+"=1")
	cmd.Stderr = os.Stderr
	return cmd
}

func TestCommandFindsServersAndItsStatusIsOurs(t *testing.T) {
	cmd := withzk(t, "--", "sh", "-c", "echo $ZKRECIPES_SERVERS; exit 3")
	out, err := cmd.Output()
	require.Error(t, err)
	require.Equal(t, 3, cmd.ProcessState.ExitCode())
	require.Regexp(t, `^127\.0\.0\.1:\d+\n$`, string(out))
}

func TestNamedServersArePassedOn(t *testing.T) {
	t.Setenv(envServers, "192.0.2.1:2181")
	out, err := withzk(t, "sh", "-c", "echo $ZKRECIPES_SERVERS").Output()
	require.NoError(t, err)
	require.Equal(t, "192.0.2.1:2181\n", string(out))
}

func TestSignalsReachTheCommand(t *testing.T) {
	t.Setenv(envServers, "192.0.2.1:2181")
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready")
	cmd := withzk(t, "sh", "-c", "trap 'exit 5' TERM; touch "+ready+"; while :; do sleep 0.05; done")
	require.NoError(t, cmd.Start())
	waitFile(t, ready)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, cmd.Wait())
	require.Equal(t, 5, cmd.ProcessState.ExitCode())
}

func TestDeathBySignalIsReported(t *testing.T) {
	t.Setenv(envServers, "192.0.2.1:2181")
	cmd := withzk(t, "sh", "-c", "kill -9 $$")
	require.Error(t, cmd.Run())
	require.Equal(t, statusSignal+int(syscall.SIGKILL), cmd.ProcessState.ExitCode())
}

func TestCommandThatIsNotThereIsAnError(t *testing.T) {
	t.Setenv(envServers, "192.0.2.1:2181")
	cmd := withzk(t, "no-such-command")
	cmd.Stderr = nil
	require.Error(t, cmd.Run())
	require.Equal(t, statusFailed, cmd.ProcessState.ExitCode())
}

func TestLeftoversGoAtTheNextStartAndTheLivingStay(t *testing.T) {
	living := ensemble.Shared(t)
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready")
	dying := withzk(t, "-nodes", "3", "--", "sh", "-c", "touch "+ready+"; cat")
	stdin, err := dying.StdinPipe() // its command ends when the test does
	require.NoError(t, err)
	defer stdin.Close()
	require.NoError(t, dying.Start())
	waitFile(t, ready)
	require.Len(t, ownedBy(t, dying.Process.Pid), 3)
	require.NoError(t, dying.Process.Kill())
	require.Error(t, dying.Wait())

	require.NoError(t, withzk(t, "--", "true").Run())

	require.Empty(t, ownedBy(t, dying.Process.Pid))
	_, err = living.Mode(t.Context(), 0)
	require.NoError(t, err)
}

// ownedBy returns the labels of the containers that a process started, because other test binaries may have containers,
// too.
func ownedBy(t *testing.T, pid int) []string {
	t.Helper()
	out, err := exec.Command("docker", "ps", "-a", "--format", `{{.Label "com.github.zkrecipes.owner"}}`).Output()
	require.NoError(t, err)
	var owned []string
	for label := range strings.Lines(string(out)) {
		if strings.Contains(label, fmt.Sprintf("/%d/", pid)) {
			owned = append(owned, strings.TrimSpace(label))
		}
	}
	return owned
}

func waitFile(t *testing.T, path string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := os.Stat(path)
		return err == nil
	}, patience, 20*time.Millisecond)
}
