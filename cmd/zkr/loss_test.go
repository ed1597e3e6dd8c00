//go:build linux

package main_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shortSession is the session timeout of tests in which a session is lost; a sixth of it is the longest grace.
const shortSession = 4 * time.Second

// family is a script whose group has three processes: itself, a child, and an orphan with another parent.
// They do not react to SIGTERM, and each adds a line to the file "term" when it gets one.
const family = `
trap 'echo $$ >> term' TERM
(trap 'echo child >> term' TERM; sh -c 'echo $PPID' > child; while :; do sleep 0.05; done) &
(sh -c 'trap "echo orphan >> term" TERM; echo $$ > orphan; while :; do sleep 0.05; done' &)
while [ ! -s child ] || [ ! -s orphan ]; do sleep 0.01; done
echo $$ > parent
while :; do sleep 0.05; done`

// startFamily returns a zkr with that script, and the processes.
func (w *world) startFamily(args ...string) (r *run, pids []int) {
	w.Helper()
	return w.startScript(family, args...)
}

func (w *world) startScript(script string, args ...string) (r *run, pids []int) {
	w.Helper()
	w.env = append(w.env, "ZKR_SESSION_TIMEOUT="+shortSession.String())
	r = w.start(append(append([]string{"lock"}, args...), "/l", "--", "sh", "-c", script)...)
	for _, name := range []string{"parent", "child", "orphan"} {
		pids = append(pids, w.pid(name))
	}
	for _, pid := range pids {
		require.True(w, isAlive(pid))
	}
	return r, pids
}

// While the servers are silent, SIGTERM arrives a grace before the end of trust, and SIGKILL at the end of trust.
// Both precede the earliest grant to the next contender.
func TestSilence(t *testing.T) {
	w := newWorld(t)
	r, pids := w.startFamily("--grace", "600ms")
	next := w.client()
	w.server.Partition(w.owner())
	silentAt := time.Now()
	w.content("term")
	termAt := time.Now()
	w.hold("/l", "next")
	for _, pid := range pids {
		require.False(t, isAlive(pid), "at the next grant")
	}
	require.Equal(t, 74, r.code())
	require.Contains(t, r.stderr.String(), "zkr: lock given up: ")
	require.Less(t, termAt.Sub(silentAt), shortSession*2/3-600*time.Millisecond+500*time.Millisecond)
	_ = next
}

// The loss is one from SIGTERM on, also if the servers answer again before SIGKILL.
func TestServersComeBackAfterTheTerm(t *testing.T) {
	w := newWorld(t)
	r, pids := w.startFamily("--grace", "600ms")
	owner := w.owner()
	w.server.Partition(owner)
	w.content("term")
	w.server.HealSessions(owner)
	require.Equal(t, 74, r.code())
	w.awaitDead(pids...)
}

// Once the servers say that the session is over, no grace is left: another may hold the lock.
func TestSessionIsOverAfterTheTerm(t *testing.T) {
	w := newWorld(t)
	r, pids := w.startFamily("--session-timeout", "12s", "--grace", "2s")
	owner := w.owner()
	w.server.Partition(owner)
	w.content("term")
	termAt := time.Now()
	w.server.Expire(owner)
	w.server.HealSessions(owner)
	w.awaitDead(pids...)
	require.Less(t, time.Since(termAt), time.Second)
	require.Equal(t, 74, r.code())
}

// A short silence costs nothing.
func TestShortSilence(t *testing.T) {
	w := newWorld(t)
	r, pids := w.startFamily("--grace", "100ms")
	owner := w.owner()
	w.server.Partition(owner)
	time.Sleep(shortSession / 4) //nolint:forbidigo // a length of silence
	w.server.HealSessions(owner)
	awaitHeartbeats(t, w.server.Observe(), 7) // T/6 apart: for longer than a session
	require.NoFileExists(t, w.file("term"))
	for _, pid := range pids {
		require.True(t, isAlive(pid))
	}
	w.awaitContenders("/l", 1)
	r.signal(syscall.SIGINT)
	require.Equal(t, 130, r.code())
}

// After a deletion of the znode, SIGTERM arrives at once, and SIGKILL after the lesser of the grace and T/6.
func TestDeletedZnode(t *testing.T) {
	const timeout, grace = 12 * time.Second, 4 * time.Second
	w := newWorld(t)
	r, pids := w.startFamily("--session-timeout", timeout.String(), "--grace", grace.String())
	deletedAt := time.Now()
	w.server.Delete(w.awaitContenders("/l", 1)[0])
	w.content("term")
	require.Less(t, time.Since(deletedAt), time.Second)
	require.Equal(t, 74, r.code())
	took := time.Since(deletedAt)
	require.GreaterOrEqual(t, took, timeout/6-50*time.Millisecond)
	require.Less(t, took, grace-500*time.Millisecond)
	w.awaitDead(pids...)
	require.Contains(t, r.stderr.String(), "its znode was deleted")
}

// A grace shorter than T/6 is what counts.
func TestShortGraceAfterADeletion(t *testing.T) {
	const timeout, grace = 30 * time.Second, 300 * time.Millisecond
	w := newWorld(t)
	r, pids := w.startFamily("--session-timeout", timeout.String(), "--grace", grace.String())
	deletedAt := time.Now()
	w.server.Delete(w.awaitContenders("/l", 1)[0])
	require.Equal(t, 74, r.code())
	took := time.Since(deletedAt)
	require.GreaterOrEqual(t, took, grace-50*time.Millisecond)
	require.Less(t, took, timeout/6-500*time.Millisecond)
	w.awaitDead(pids...)
}

func TestExpiredSession(t *testing.T) {
	w := newWorld(t)
	r, pids := w.startFamily("--grace", "100ms")
	w.server.Expire(w.owner())
	require.Equal(t, 74, r.code())
	w.awaitDead(pids...)
	require.NotEmpty(t, w.content("term"))
}

// A loss remains a loss if the command ends at SIGTERM.
func TestPoliteCommandAfterALoss(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_SESSION_TIMEOUT="+shortSession.String())
	r := w.start("lock", "--grace", "1s", "/l", "--", "sh", "-c", `trap 'echo term > term; exit 0' TERM; echo > ready; while :; do sleep 0.05; done`)
	w.content("ready")
	w.server.Delete(w.awaitContenders("/l", 1)[0])
	require.Equal(t, 74, r.code())
	require.FileExists(t, w.file("term"))
}

func TestGraceIsCutToASixthOfTheGrantedTimeout(t *testing.T) {
	w := newWorld(t)
	w.server.SetSessionTimeouts(3*time.Second, 3*time.Second)
	got := w.run("lock", "/l", "--grace", "2s", "--", "true")
	require.Equal(t, 0, got.code)
	require.Contains(t, got.stderr, "the grace of 2s is cut to 500ms")
	require.Empty(t, w.run("lock", "/l", "--grace", "400ms", "--", "true").stderr)
	require.Empty(t, w.run("lock", "/l", "--", "true").stderr, "the default is cut silently")
}

// A killed zkr leaves no process of the group alive.
func TestKilledZkr(t *testing.T) {
	w := newWorld(t)
	r, pids := w.startFamily()
	killedAt := time.Now()
	r.signal(syscall.SIGKILL)
	w.awaitDead(pids...)
	require.Less(t, time.Since(killedAt), 2*time.Second)
	r.await()
}

// A process outside the group dies as well, if it kept its environment.
func TestProcessOutsideTheGroup(t *testing.T) {
	const script = `
sh -c 'trap "" TERM; echo $$ > child; while :; do sleep 0.05; done' &
setsid sh -c 'echo $$ > orphan; exec sleep 100' &
while [ ! -s child ] || [ ! -s orphan ]; do sleep 0.01; done
echo $$ > parent
wait`
	for name, end := range map[string]func(*world, *run){
		"zkr is killed":        func(_ *world, r *run) { r.signal(syscall.SIGKILL) },
		"the znode is deleted": func(w *world, _ *run) { w.server.Delete(w.awaitContenders("/l", 1)[0]) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r, pids := w.startScript(script, "--grace", "100ms")
			end(w, r)
			w.awaitDead(pids...)
			r.await()
		})
	}
}

// A killed outer zkr takes the inner one and its group along.
func TestKilledOuterZkr(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, os.WriteFile(w.file("inner"), []byte("#!/bin/sh\n"+family), 0o700)) //nolint:gosec // a script
	r := w.start("lock", "/outer", "--", "sh", "-c", `"$@"; exit`, "sh", binary, "lock", "/inner", "--", "./inner")
	pids := []int{w.pid("parent"), w.pid("child"), w.pid("orphan")}
	r.signal(syscall.SIGKILL)
	w.awaitDead(pids...)
	r.await()
}

// The loss of the outer lock ends the inner command, too.
func TestLostOuterLock(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_SESSION_TIMEOUT="+shortSession.String())
	require.NoError(t, os.WriteFile(w.file("inner"), []byte("#!/bin/sh\n"+family), 0o700)) //nolint:gosec // a script
	r := w.start("lock", "--grace", "100ms", "/outer", "--", binary, "lock", "/inner", "--", "./inner")
	pids := []int{w.pid("parent"), w.pid("child"), w.pid("orphan")}
	w.server.Delete(w.awaitContenders("/outer", 1)[0])
	require.Equal(t, 74, r.code())
	w.awaitDead(pids...)
}

// A stopped zkr can't kill. Its watchdog kills the group at the end of trust.
func TestStoppedZkr(t *testing.T) {
	w := newWorld(t)
	r, pids := w.startFamily("--grace", "100ms")
	r.signal(syscall.SIGSTOP)
	stoppedAt := time.Now()
	w.hold("/l", "next")
	for _, pid := range pids {
		require.False(t, isAlive(pid), "at the next grant")
	}
	require.Greater(t, time.Since(stoppedAt), shortSession/3)
	r.signal(syscall.SIGCONT)
	require.Equal(t, 74, r.code())
}

// A killed watchdog has a successor.
func TestKilledWatchdog(t *testing.T) {
	w := newWorld(t)
	r, pids := w.startFamily()
	var first, second int
	w.eventually(func() bool { first = watchdogOf(r.cmd.Process.Pid); return first != 0 }, "the watchdog")
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	w.eventually(func() bool {
		second = watchdogOf(r.cmd.Process.Pid)
		return second != 0 && second != first
	}, "another watchdog")
	w.eventually(func() bool { return name(second) == "lock-watchdog" }, "it has begun")
	r.signal(syscall.SIGKILL)
	w.awaitDead(pids...)
	w.awaitDead(second)
	r.await()
}

// The command cleared its environment, so only the group identifies it, and the watchdog was killed. The successor knows the
// group as well.
func TestKilledWatchdogOfACleanedEnvironment(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, os.WriteFile(w.file("inner"), []byte("#!/bin/sh\n"+family), 0o700)) //nolint:gosec // a script
	r, pids := w.startScript(`exec env -i PATH="$PATH" ./inner`)
	first := watchdogOf(r.cmd.Process.Pid)
	require.NotZero(t, first)
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	second := 0
	w.eventually(func() bool {
		second = watchdogOf(r.cmd.Process.Pid)
		return second != 0 && second != first && name(second) == "lock-watchdog"
	}, "another watchdog")
	r.signal(syscall.SIGKILL)
	w.awaitDead(append(pids, second)...)
	r.await()
}

// Signals for all processes named zkr do not reach the watchdog, and it ignores those that it can.
func TestWatchdogIsNotHitByName(t *testing.T) {
	w := newWorld(t)
	r, pids := w.startFamily()
	dog := 0
	w.eventually(func() bool { dog = watchdogOf(r.cmd.Process.Pid); return dog != 0 && name(dog) == "lock-watchdog" }, "the watchdog")
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1} {
		require.NoError(t, syscall.Kill(dog, s))
	}
	arguments, err := os.ReadFile("/proc/" + itoa(int64(dog)) + "/cmdline")
	require.NoError(t, err)
	require.Equal(t, "lock-watchdog\x00", string(arguments))
	require.True(t, isAlive(dog))
	r.signal(syscall.SIGKILL)
	w.awaitDead(append(pids, dog)...)
	r.await()
}

// No watchdog outlives an ended zkr.
func TestWatchdogEndsWithZkr(t *testing.T) {
	w := newWorld(t)
	r := w.startWith(func(*exec.Cmd) {}, "lock", "/l", "--", "sh", "-c", "echo > ready; while [ ! -e go ]; do sleep 0.01; done")
	w.content("ready")
	dog := watchdogOf(r.cmd.Process.Pid)
	require.NotZero(t, dog)
	require.NoError(t, os.WriteFile(w.file("go"), nil, 0o600))
	require.Equal(t, 0, r.code())
	require.False(t, isAlive(dog))
}
