//go:build integration

package main

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func servers(t *testing.T) string {
	t.Helper()
	s := os.Getenv("ZKRECIPES_SERVERS")
	require.NotEmpty(t, s, "run through integration/cmd/withzk")
	return s
}

func requireSoldOut(t *testing.T, args ...string) {
	t.Helper()
	status, stdout, stderr := command(t, append([]string{"-zk", servers(t)}, args...)...)
	t.Log(stdout)
	require.Equal(t, exitSound, status, stderr)
	require.Contains(t, stdout, "A lock in ZooKeeper lets ")
	require.Equal(t, soldOut, lastLine(stdout))
}

func TestDemoOnARealZooKeeper(t *testing.T) {
	t.Setenv("STOCK_DB", "")
	requireSoldOut(t)
}

func TestMariaDB(t *testing.T) {
	dsn := os.Getenv("STOCK_DB")
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
	t.Run("demo", func(t *testing.T) {
		requireSoldOut(t, "-db", dsn)
	})
	t.Run("demo without lock", func(t *testing.T) {
		status, stdout, stderr := command(t, "-lock=false", "-db", dsn)
		t.Log(stdout)
		require.Equal(t, exitDamaged, status, stderr)
		require.NotContains(t, lastLine(stdout), "oversold 0")
	})
}

// While a process is stopped, its session expires and the others continue to sell. When it resumes, a holder in it
// still trusts its lock, and its buyers still wait.
func TestServiceStoppedForLongerThanItsSession(t *testing.T) {
	stopped := make(chan struct{})
	requireSoundUnder(t, func(db *store, victim *process, answered int64) {
		switch answered {
		case 50:
			defer close(stopped)
			stopBetweenWrites(t, db, victim)
		case 300:
			// A hundred buyers of the victim were in the queue, which moved on without them after the end of the
			// session.
			<-stopped
			require.NoError(t, victim.cmd.Process.Signal(syscall.SIGCONT))
		}
	})
}

// stopBetweenWrites stops a process while it writes nothing to the database. SQLite has no sessions that expire, so a
// writer stopped in its transaction would block all others until it is continued.
func stopBetweenWrites(t *testing.T, db *store, victim *process) {
	t.Helper()
	tx, err := db.db.BeginTx(t.Context(), nil) // SQLite has one writer at a time
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	require.NoError(t, victim.cmd.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err = syscall.Wait4(victim.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped())
}

// The buyers of a killed process ask other services. A buyer whose purchase succeeded without an answer gets that
// answer there, and buys nothing twice.
func TestServiceKilled(t *testing.T) {
	requireSoundUnder(t, func(_ *store, victim *process, answered int64) {
		if answered == 50 {
			require.NoError(t, victim.cmd.Process.Signal(syscall.SIGKILL))
		}
	})
}

// requireSoundUnder runs the demo's load against three services. harm is called
// for every buyer who got an answer, with the database and their number so far.
func requireSoundUnder(t *testing.T, harm func(db *store, victim *process, answered int64)) {
	t.Helper()
	o := options{
		zk: servers(t), db: filepath.Join(t.TempDir(), "stock.db"), lock: true,
		think: 2 * time.Millisecond, patience: time.Minute, sessionTimeout: 4 * time.Second,
	}
	db, err := openStore(t.Context(), o.db)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, db.reset(t.Context(), goods, 100))

	var stderr output
	var processes []*process
	l := &load{goods: []string{goods}, buyers: 1500, atOnce: 1500}
	for range 3 {
		p, err := startProcess(t.Context(), o, &stderr)
		require.NoError(t, err)
		defer func() { _ = p.stop() }() // a killed one has nothing good to say
		processes = append(processes, p)
		l.urls = append(l.urls, p.url)
	}
	var answered atomic.Int64
	l.answered = func() { harm(db, processes[0], answered.Add(1)) }

	r := report{tally: l.run(t.Context()), lock: true, items: 100}
	require.NoError(t, r.count(t.Context(), db, l.goods))
	var out output
	require.NoError(t, r.write(&out))
	t.Log(out.String())
	require.NoError(t, r.firstErr)
	require.True(t, r.sound(), stderr.String())
	require.Equal(t, soldOut, lastLine(out.String()))
}
