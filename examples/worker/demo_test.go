//go:build unix

package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// summary is the last line of a demonstration. A slow machine may see a run more.
const summary = `^worker: \d+ leaders, \d+ runs, 1 stale write refused, 0 overlapping terms$`

// The demo, as in the README, with only this program, and a little faster.
func TestDemo(t *testing.T) {
	t.Setenv("ZKRECIPES_SERVERS", "")
	t.Setenv("WORKER_DB", "")
	t.Setenv("TMPDIR", t.TempDir())

	status, stdout, stderr := command(t, "-every", "500ms", "-work", "200ms", "-session-timeout", "2s")
	t.Log(stdout)
	require.Equal(t, exitSound, status, stderr)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "a run every 500ms, sessions of 2s, SQLite, an embedded ZooKeeper\n")
	for _, said := range []string{
		"watch it at http://127.0.0.1:", "worker-1 leads, its token is ",
		"→ SIGTERM to worker-1: ", " leads no more: released\n", "→ SIGKILL to ", "→ SIGSTOP to ", "→ SIGCONT to ",
		": stale fencing token\n", " leads no more: session lost\n",
	} {
		require.Contains(t, stdout, said)
	}
	require.Regexp(t, summary, lastLine(stdout))

	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "the temporary database is gone")
}
