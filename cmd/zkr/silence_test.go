//go:build linux

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// withoutReader closes the reader of a zkr's stderr before zkr writes anything.
func withoutReader(t *testing.T) func(*exec.Cmd) {
	t.Helper()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	t.Cleanup(func() { require.NoError(t, write.Close()) })
	return func(c *exec.Cmd) { c.Stderr = write }
}

// TestStderrWhoseReaderIsGone has a command that ends in order when it is asked to: zkr, which says so, must not
// die of SIGPIPE, and the command not of SIGKILL.
func TestStderrWhoseReaderIsGone(t *testing.T) {
	for _, flags := range [][]string{{}, {"-v"}} {
		for _, command := range []string{"lock", "elect"} {
			t.Run(command+strings.Join(flags, ""), func(t *testing.T) {
				w := newWorld(t)
				r := w.startWith(withoutReader(t), append(flags, command, "/l", "--", "sh", "-c",
					"exec 2> /dev/null; trap 'echo > asked; exit 8' TERM; echo > ready; while :; do sleep 0.02; done")...)
				w.content("ready")
				require.Equal(t, 0, w.run("revoke", "/l").code)
				require.Equal(t, 8, r.code())
				require.FileExists(t, w.file("asked"))
			})
		}
	}
}

// TestCommandDiesOfSIGPIPE requires that the command does not inherit zkr's handling of SIGPIPE.
func TestCommandDiesOfSIGPIPE(t *testing.T) {
	w := newWorld(t)
	require.Equal(t, result{128 + 13, "", ""}, w.run("lock", "/l", "--", "sh", "-c", "kill -PIPE $$; exit 3"))
}

// TestStoppedWatchdogDoesNotKeepTheLock has a watchdog that is stopped when the command ends.
func TestStoppedWatchdogDoesNotKeepTheLock(t *testing.T) {
	w := newWorld(t)
	r := w.start("lock", "/l", "--", "sh", "-c", "echo > ready; while [ ! -e go ]; do sleep 0.01; done")
	w.content("ready")
	dog := watchdogOf(r.cmd.Process.Pid)
	require.NoError(t, syscall.Kill(dog, syscall.SIGSTOP)) // ahead of the file, because the watchdog may end within milliseconds of it
	require.NoError(t, os.WriteFile(w.file("go"), nil, 0o600))
	w.awaitDead(dog)
	require.Equal(t, 0, r.code())
	require.Empty(t, w.server.Children("/l"))
}

// TestStoppedWatchdogIsReplaced stops the watchdog, which then guards nothing.
func TestStoppedWatchdogIsReplaced(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_SESSION_TIMEOUT="+shortSession.String())
	r, pids := w.startFamily()
	first, second := watchdogOf(r.cmd.Process.Pid), 0
	require.NoError(t, syscall.Kill(first, syscall.SIGSTOP))
	w.awaitDead(first)
	w.eventually(func() bool {
		second = watchdogOf(r.cmd.Process.Pid)
		return second != 0 && second != first && name(second) == "lock-watchdog"
	}, "another watchdog")
	r.signal(syscall.SIGKILL)
	w.awaitDead(append(pids, second)...)
	r.await()
}

// seedHolder makes a znode that holds the lock at a path, of a session without a client.
func (w *world) seedHolder(path, id string) (znode string) {
	w.Helper()
	znode = path + "/_c_00000000-0000-4000-8000-000000000000-lock-0000000001"
	w.server.Seed(zktest.Znode{Path: znode, Session: w.server.OpenSession(time.Hour), Data: []byte(id)})
	return znode
}

// silent makes the server answer nothing but handshakes and pings from now on.
func (w *world) silent() {
	w.server.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == zktest.OpConnect || r.Op == zktest.OpPing {
			return zktest.Fault{}
		}
		return zktest.Fault{Lost: zktest.NoAnswer}
	})
}

// TestObserversAreBounded uses servers that fall silent before or after the handshake. Each command ends with 69.
func TestObserversAreBounded(t *testing.T) {
	const after, before = "after the handshake", "before the handshake"
	for when, commands := range map[string][][]string{
		after:  {{"revoke", "--wait", "2s", "/l"}, {"kick", "--yes", "ZNODE"}},
		before: {{"revoke", "--wait", "2s", "/l"}, {"ls", "/l"}},
	} {
		for _, args := range commands {
			t.Run(fmt.Sprint(args[0], len(args), " ", when), func(t *testing.T) {
				w := newWorld(t)
				znode := w.seedHolder("/l", "ann")
				if when == before {
					w.server.Freeze()
				} else {
					w.silent()
				}
				began := time.Now()
				got := w.run(strings.Split(strings.ReplaceAll(strings.Join(args, " "), "ZNODE", znode), " ")...)
				require.Equal(t, 69, got.code, got.stderr)
				require.NotEmpty(t, got.stderr)
				limit := 20 * time.Second
				if len(args) == 4 {
					limit = 6 * time.Second
				}
				require.Less(t, time.Since(began), limit)
			})
		}
	}
}

// TestRevokeWhoseWaitFallsSilent sends a revocation. It is then unknown whether the lock was released.
func TestRevokeWhoseWaitFallsSilent(t *testing.T) {
	w := newWorld(t)
	w.seedHolder("/l", "ann")
	r := w.start("revoke", "--wait", "3s", "/l")
	w.eventually(func() bool { return strings.Contains(r.stdout.String(), "asking") }, "it asks")
	w.silent()
	require.Equal(t, 69, r.code(), r.stderr.String())
}
