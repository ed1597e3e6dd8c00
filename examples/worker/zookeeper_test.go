//go:build integration && unix

package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// realTick is withzk's.
const realTick = 500 * time.Millisecond

func servers(t *testing.T) string {
	t.Helper()
	s := os.Getenv("ZKRECIPES_SERVERS")
	require.NotEmpty(t, s, "run through integration/cmd/withzk")
	return s
}

func TestSigtermOnARealZooKeeper(t *testing.T) { testSigterm(t, servers(t)) }

func TestSigkillOnARealZooKeeper(t *testing.T) { testSigkill(t, servers(t), realTick) }

func TestSigstopOnARealZooKeeper(t *testing.T) { testSigstop(t, servers(t), realTick) }

func requireSound(t *testing.T, args ...string) {
	t.Helper()
	status, stdout, stderr := command(t, append([]string{"-zk", servers(t)}, args...)...)
	t.Log(stdout)
	require.Equal(t, exitSound, status, stderr)
	require.Contains(t, stdout, ", ZooKeeper\n")
	require.Regexp(t, summary, lastLine(stdout))
}

func TestDemoOnARealZooKeeper(t *testing.T) {
	t.Setenv("WORKER_DB", "")
	requireSound(t)
}

func TestMariaDB(t *testing.T) {
	dsn := os.Getenv("WORKER_DB")
	require.NotEmpty(t, dsn, "run through examples/cmd/withmariadb")
	t.Run("store", func(t *testing.T) {
		testStore(t, func(t *testing.T) *store {
			t.Helper()
			s, err := openStore(t.Context(), dsn)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s
		})
	})
	t.Run("demo", func(t *testing.T) { requireSound(t, "-db", dsn) })
}
