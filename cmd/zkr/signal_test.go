//go:build linux

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Signals go to the whole group.
func TestSignalsAreForwarded(t *testing.T) {
	for s, name := range map[syscall.Signal]string{
		syscall.SIGINT: "INT", syscall.SIGTERM: "TERM", syscall.SIGHUP: "HUP",
		syscall.SIGQUIT: "QUIT", syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := w.start("lock", "/l", "--", "sh", "-c", `
trap 'echo parent >> got; exit 5' `+name+`
sh -c 'trap "echo child >> got; exit" `+name+`; echo > ready; while :; do sleep 0.02; done'
while :; do sleep 0.02; done`)
			w.content("ready")
			r.signal(s)
			require.Equal(t, 5, r.code())
			content, err := os.ReadFile(w.file("got"))
			require.NoError(t, err)
			require.Contains(t, string(content), "parent\n")
			require.Contains(t, string(content), "child\n")
		})
	}
}

// A signal ends the wait, and leaves nothing in the queue.
func TestSignalWhileWaiting(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		for _, command := range []string{"lock", "elect"} {
			t.Run(command+" "+s.String(), func(t *testing.T) {
				w := newWorld(t)
				w.hold("/l", "x")
				r := w.start(command, "/l", "--", "touch", "ran")
				w.awaitContenders("/l", 2)
				r.signal(s)
				require.Equal(t, 128+int(s), r.code())
				require.Len(t, w.server.Children("/l"), 1)
				require.NoFileExists(t, w.file("ran"))
				require.Empty(t, r.stderr.String())
			})
		}
	}
}

func TestSignalWhileConnecting(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t)
			w.server.Freeze()
			r := w.start("lock", "/l", "--", "true")
			w.eventually(func() bool { return w.server.Connections() > 0 }, "it connects")
			r.signal(s)
			require.Equal(t, 128+int(s), r.code())
		})
	}
}

// Signals that zkr was started to ignore, as under nohup, are ignored by zkr and by the command.
func TestIgnoredSignals(t *testing.T) {
	w := newWorld(t)
	r := w.startWith(func(c *exec.Cmd) {
		c.Path, c.Args = "/bin/sh", []string{
			"sh", "-c", `trap "" HUP; exec "$@"`, "sh", binary, "lock", "/l", "--", "sh", "-c",
			"echo $$ > parent; kill -HUP $$; echo > survived; while [ ! -e go ]; do sleep 0.02; done",
		}
	})
	w.content("survived")
	r.signal(syscall.SIGHUP)
	require.NoError(t, os.WriteFile(w.file("go"), nil, 0o600))
	require.Equal(t, 0, r.code())
}

// Processes that the command leaves in its group are ended before the lock is released.
func TestGroupThatOutlivesTheCommand(t *testing.T) {
	w := newWorld(t)
	r := w.start("lock", "--grace", "300ms", "/l", "--", "sh", "-c", `
(trap 'echo term > term' TERM; sh -c 'echo $PPID' > left; while :; do sleep 0.02; done) > /dev/null 2>&1 &
while [ ! -s left ]; do sleep 0.01; done
exit 6`)
	left := w.pid("left")
	lease := w.hold("/l", "next")
	require.False(t, isAlive(left), "at the next grant")
	require.FileExists(t, w.file("term"))
	require.Equal(t, 6, r.code())
	require.NoError(t, lease.Release())
}

// Zkr does not wait for a command that is already dead.
func TestNoGraceForAnEmptyGroup(t *testing.T) {
	w := newWorld(t)
	began := time.Now()
	require.Equal(t, 0, w.run("lock", "/l", "--", "true").code)
	require.Less(t, time.Since(began), 4*time.Second)
}

// SIGTSTP stops the group and zkr, SIGCONT continues both.
func TestStopAndContinue(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, syscall.Mkfifo(w.file("go"), 0o600))
	// No process forks while stopped. A shell that waits in vfork does not stop.
	r := w.start("lock", "/l", "--", "sh", "-c", `
sh -c 'echo $$ > child; exec sleep 100' &
echo $$ > parent; read line < go; kill %1 2> /dev/null; exit 3`)
	pids := []int{r.cmd.Process.Pid, w.pid("parent"), w.pid("child")}
	r.signal(syscall.SIGTSTP)
	for _, pid := range pids {
		w.eventually(func() bool { return state(pid) == "T" }, "stopped")
	}
	r.signal(syscall.SIGCONT)
	for _, pid := range pids {
		w.eventually(func() bool { return state(pid) != "T" }, "continued")
	}
	require.NoError(t, os.WriteFile(w.file("go"), []byte("on\n"), 0o600))
	require.Equal(t, 3, r.code())
}

// A command that does not stop by itself is stopped.
func TestStopOfACommandThatIgnoresIt(t *testing.T) {
	w := newWorld(t)
	r := w.start("lock", "/l", "--", "sh", "-c", `trap '' TSTP; echo $$ > parent; exec sleep 100`)
	pid := w.pid("parent")
	for range 3 {
		r.signal(syscall.SIGTSTP)
		w.eventually(func() bool { return state(pid) == "T" && state(r.cmd.Process.Pid) == "T" }, "stopped")
		r.signal(syscall.SIGCONT)
		w.eventually(func() bool { return state(pid) != "T" && state(r.cmd.Process.Pid) != "T" }, "continued")
	}
	r.signal(syscall.SIGTERM)
	require.Equal(t, 128+15, r.code())
}

// A group whose lock was lost while it was stopped is killed, not continued.
func TestLostWhileStopped(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_SESSION_TIMEOUT="+shortSession.String())
	r := w.start("lock", "--grace", "100ms", "/l", "--", "sh", "-c", `echo $$ > parent; kill -STOP $$; echo > continued`)
	pid := w.pid("parent")
	w.eventually(func() bool { return state(pid) == "T" }, "stopped")
	w.server.Delete(w.awaitContenders("/l", 1)[0])
	require.Equal(t, 74, r.code())
	require.False(t, isAlive(pid))
	require.NoFileExists(t, w.file("continued"))
}

// The same when zkr itself was stopped, until the session was over.
func TestLostWhileZkrWasStopped(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_SESSION_TIMEOUT="+shortSession.String())
	r := w.start("lock", "--grace", "100ms", "/l", "--", "sh", "-c", `echo $$ > parent; while :; do sleep 0.02; [ -e lost ] && echo > continued; done`)
	pid := w.pid("parent")
	r.signal(syscall.SIGTSTP)
	w.eventually(func() bool { return state(r.cmd.Process.Pid) == "T" }, "stopped")
	w.hold("/l", "next")
	require.NoError(t, os.WriteFile(w.file("lost"), nil, 0o600))
	r.signal(syscall.SIGCONT)
	require.Equal(t, 74, r.code())
	require.False(t, isAlive(pid))
	require.NoFileExists(t, w.file("continued"))
}

// counts is a command that counts signals. USR1 is sent after the counted signals.
const counts = `trap 'echo term >> got' TERM; trap 'echo hup >> got' HUP; trap 'echo usr1 > usr1' USR1; echo $$ > parent
while [ ! -e usr1 ]; do sleep 0.02; done; exit 3`

// TestSignalForAllProcessesOfAServiceIsSentOnce: as systemd does, which sends SIGTERM to zkr, to its watchdog and to the command.
func TestSignalForAllProcessesOfAServiceIsSentOnce(t *testing.T) {
	for _, isNested := range []bool{false, true} {
		t.Run(fmt.Sprint("nested ", isNested), func(t *testing.T) {
			w := newWorld(t)
			args := []string{"lock", "/l", "--", "sh", "-c", counts}
			if isNested {
				args = append([]string{"lock", "/outer", "--", binary}, args...)
			}
			r := w.start(args...)
			parent := w.pid("parent")
			service := append([]int{r.cmd.Process.Pid}, descendantsOf(r.cmd.Process.Pid)...)
			require.Contains(t, service, parent)
			for _, dog := range service {
				w.eventually(func() bool { return name(dog) != "exe" }, "the watchdog has begun")
			}
			for n, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
				require.NoError(t, syscall.Kill(parent, s))
				w.eventually(func() bool { return len(w.lines("got")) == n+1 }, "the command got it") // a shell takes two at once for one
				for _, pid := range service {
					if pid != parent && name(pid) != "sleep" {
						_ = syscall.Kill(pid, s) // it may be a sleep that just ended
					}
				}
			}
			r.signal(syscall.SIGUSR1)
			require.Equal(t, 3, r.code(), r.stderr.String())
			require.ElementsMatch(t, []string{"term", "hup"}, w.lines("got"))
		})
	}
}

// TestSignalForZkrAloneIsPassedOn has a case in which the watchdog is dead.
func TestSignalForZkrAloneIsPassedOn(t *testing.T) {
	w := newWorld(t)
	r := w.start("lock", "/l", "--", "sh", "-c", counts)
	w.pid("parent")
	require.NoError(t, syscall.Kill(watchdogOf(r.cmd.Process.Pid), syscall.SIGKILL))
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1} {
		r.signal(s)
	}
	require.Equal(t, 3, r.code(), r.stderr.String())
	require.ElementsMatch(t, []string{"term", "hup"}, w.lines("got"))
}
