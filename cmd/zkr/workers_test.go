//go:build linux

package main_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// workers is a script that waits for two workers outside its group: one under timeout(1), which ends at SIGTERM
// together with its command, and one under setsid(1), which ignores SIGTERM. The script itself ends at SIGTERM, so that
// no process in the group needs SIGKILL.
const workers = `
timeout 40 sh -c 'echo $$ > polite; exec sleep 39' &
setsid sh -c 'trap "" TERM; echo $$ > stubborn; while :; do sleep 0.05; done' &
while [ ! -s polite ] || [ ! -s stubborn ]; do sleep 0.01; done
echo $$ > parent
wait`

// awaitWorkers waits until the script started the workers, and returns their processes.
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

// TestWorkersThatLeftTheGroupEndWithTheLock uses a group that ends at SIGTERM. Every loss of the lock also ends the
// processes outside the group.
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

// TestRevokedLockIsKeptUntilTheWorkersHaveEnded requires that the holder keeps a revoked lock until its work ends.
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

// TestPoliteWorkersGetSIGTERM requires a SIGTERM for processes outside the group before SIGKILL.
func TestPoliteWorkersGetSIGTERM(t *testing.T) {
	w := newWorld(t)
	w.start("lock", "--grace", "4s", "/l", "--", "sh", "-c",
		`setsid sh -c 'trap "echo > term; exit" TERM; echo > ready; while :; do sleep 0.02; done' & wait`)
	w.content("ready")
	w.server.Delete(w.awaitContenders("/l", 1)[0])
	w.content("term")
}

// TestDaemonOutlivesACommandThatEndsInOrder requires that processes outside the group stay alive, even if others of
// the group need SIGKILL.
func TestDaemonOutlivesACommandThatEndsInOrder(t *testing.T) {
	w := newWorld(t)
	got := w.run("lock", "--grace", "100ms", "/l", "--", "sh", "-c", `
setsid sh -c 'echo $$ > daemon; while [ ! -e go ]; do sleep 0.02; done' > /dev/null 2>&1 &
sh -c 'trap "" TERM; echo $$ > left; while :; do sleep 0.02; done' > /dev/null 2>&1 &
while [ ! -s daemon ] || [ ! -s left ]; do sleep 0.01; done`)
	require.Equal(t, 0, got.code)
	require.False(t, isAlive(w.pid("left")))
	require.True(t, isAlive(w.pid("daemon")))
	time.Sleep(200 * time.Millisecond) //nolint:forbidigo // longer than a late kill
	require.True(t, isAlive(w.pid("daemon")))
	require.NoError(t, os.WriteFile(w.file("go"), nil, 0o600))
	w.awaitDead(w.pid("daemon"))
}
