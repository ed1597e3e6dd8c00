package main_test

import (
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

// What zkr was started to ignore it ignores, and so does the command, as with nohup.
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

// What the command leaves running in its group is ended before the lock goes.
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

// A command that has ended by itself is not waited for.
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
	// Nobody forks while it is stopped: a shell that waits in vfork does not stop.
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
