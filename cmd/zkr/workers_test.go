package main_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// workers is a script that only waits for two workers, which have left its group: one by timeout(1), which ends at
// SIGTERM with what it runs, and one by setsid(1), which ignores SIGTERM. The script itself ends at SIGTERM, so nothing
// in the group ever needs SIGKILL.
const workers = `
timeout 40 sh -c 'echo $$ > polite; exec sleep 39' &
setsid sh -c 'trap "" TERM; echo $$ > stubborn; while :; do sleep 0.05; done' &
while [ ! -s polite ] || [ ! -s stubborn ]; do sleep 0.01; done
echo $$ > parent
wait`

// awaitWorkers waits until the script has started the workers, and returns their processes.
func (w *world) awaitWorkers() (pids []int) {
	w.Helper()
	for _, name := range []string{"parent", "polite", "stubborn"} {
		pids = append(pids, w.pid(name))
		require.True(w, isAlive(pids[len(pids)-1]), name)
	}
	w.Cleanup(func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return pids
}

// TestWorkersThatLeftTheGroupEndWithTheLock has a group for which SIGTERM is enough: whatever takes the lock away
// also ends the processes that have left the group.
func TestWorkersThatLeftTheGroupEndWithTheLock(t *testing.T) {
	for name, end := range map[string]func(*world){
		"kicked":  func(w *world) { w.server.Delete(w.awaitContenders("/l", 1)[0]) },
		"expired": func(w *world) { w.server.Expire(w.owner()) },
		"revoked": func(w *world) { require.Equal(w, 0, w.run("revoke", "/l").code) },
	} {
		for _, command := range []string{"lock", "elect"} {
			t.Run(command+" "+name, func(t *testing.T) {
				w := newWorld(t)
				r := w.start(command, "--session-timeout", "6s", "--grace", "300ms", "/l", "--", "sh", "-c",
					`[ -e parent ] && exit 9; `+workers)
				pids := w.awaitWorkers()
				end(w)
				r.await()
				for _, pid := range pids {
					require.False(t, isAlive(pid), "when zkr has ended")
				}
			})
		}
	}
}

// TestWorkersAreDeadAtTheNextGrant has servers that fall silent.
func TestWorkersAreDeadAtTheNextGrant(t *testing.T) {
	w := newWorld(t)
	r := w.start("lock", "--session-timeout", shortSession.String(), "--grace", "300ms", "/l", "--", "sh", "-c", workers)
	pids := w.awaitWorkers()
	w.server.Partition(w.owner())
	w.hold("/l", "next")
	for _, pid := range pids {
		require.False(t, isAlive(pid), "at the next grant")
	}
	require.Equal(t, 74, r.code())
}

// TestRevokedLockIsKeptUntilTheWorkersHaveEnded: a revocation leaves the lock with its holder until it has ended.
func TestRevokedLockIsKeptUntilTheWorkersHaveEnded(t *testing.T) {
	w := newWorld(t)
	w.start("lock", "--grace", "500ms", "/l", "--", "sh", "-c", workers)
	pids := w.awaitWorkers()
	require.Equal(t, 0, w.run("revoke", "/l").code)
	w.hold("/l", "next")
	for _, pid := range pids {
		require.False(t, isAlive(pid), "at the next grant")
	}
}

// TestPoliteWorkersGetSIGTERM: those who have left the group are asked before they are killed.
func TestPoliteWorkersGetSIGTERM(t *testing.T) {
	w := newWorld(t)
	w.start("lock", "--grace", "4s", "/l", "--", "sh", "-c",
		`setsid sh -c 'trap "echo > term; exit" TERM; echo > ready; while :; do sleep 0.02; done' & wait`)
	w.content("ready")
	w.server.Delete(w.awaitContenders("/l", 1)[0])
	w.content("term")
}

// TestDaemonOutlivesACommandThatEndsInOrder: what has left the group is left alone, even if others of the group need
// SIGKILL.
func TestDaemonOutlivesACommandThatEndsInOrder(t *testing.T) {
	w := newWorld(t)
	got := w.run("lock", "--grace", "100ms", "/l", "--", "sh", "-c", `
setsid sh -c 'echo $$ > daemon; while [ ! -e go ]; do sleep 0.02; done' > /dev/null 2>&1 &
sh -c 'trap "" TERM; echo $$ > left; while :; do sleep 0.02; done' > /dev/null 2>&1 &
while [ ! -s daemon ] || [ ! -s left ]; do sleep 0.01; done`)
	require.Equal(t, 0, got.code)
	require.False(t, isAlive(w.pid("left")))
	require.True(t, isAlive(w.pid("daemon")))
	time.Sleep(200 * time.Millisecond) //nolint:forbidigo // a kill that comes late
	require.True(t, isAlive(w.pid("daemon")))
	require.NoError(t, os.WriteFile(w.file("go"), nil, 0o600))
	w.awaitDead(w.pid("daemon"))
}
