//go:build linux

package main_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLockRunsTheCommandAndReleases(t *testing.T) {
	w := newWorld(t)
	got := w.run("lock", "/l", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
	require.Equal(t, result{7, "out\n", "err\n"}, got)
	require.Empty(t, w.server.Children("/l"))
	w.eventually(func() bool { return len(w.server.Sessions()) == 0 }, "the session is closed")
}

func TestStdinIsPassedOn(t *testing.T) {
	w := newWorld(t)
	r := w.startWith(func(c *exec.Cmd) { c.Stdin = strings.NewReader("given\n") }, "lock", "/l", "--", "cat")
	require.Equal(t, 0, r.code())
	require.Equal(t, "given\n", r.stdout.String())
}

func TestCodeOfASignalledCommand(t *testing.T) {
	w := newWorld(t)
	require.Equal(t, 128+9, w.run("lock", "/l", "--", "sh", "-c", "kill -9 $$").code)
	require.Equal(t, 128+15, w.run("lock", "/l", "--", "sh", "-c", "kill -15 $$").code)
}

// The arguments reach the command unchanged, without a shell, and zkr does not parse flags after --.
func TestArgumentsAreNotInterpreted(t *testing.T) {
	w := newWorld(t)
	got := w.run("lock", "/l", "--", "printf", "[%s]", "a b", "$HOME", "-n", "--", "*")
	require.Equal(t, result{0, "[a b][$HOME][-n][--][*]", ""}, got)
}

func TestEnvironmentOfTheCommand(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_NAMESPACE=/team", "ZKR_LOCK_PATH=outer", "ZKR_LOCK_ZNODE=outer", "ZKR_FENCING_TOKEN=1", "KEPT=yes")
	r := w.start("lock", "/l", "--", "sh", "-c", "env > e; echo > ready; sleep 60")
	w.content("ready")
	environment := strings.Split(w.content("e"), "\n")
	znode := w.awaitContenders("/team/l", 1)[0]
	_, stat, _ := w.server.Get(znode)
	require.Contains(t, environment, "ZKR_LOCK_PATH=/l")
	require.Contains(t, environment, "ZKR_LOCK_ZNODE="+strings.TrimPrefix(znode, "/team"))
	require.Contains(t, environment, "ZKR_FENCING_TOKEN="+itoa(stat.Czxid))
	require.Contains(t, environment, "KEPT=yes")
	for _, name := range []string{"ZKR_LOCK_PATH=", "ZKR_LOCK_ZNODE=", "ZKR_FENCING_TOKEN="} {
		require.Equal(t, 1, strings.Count("\n"+strings.Join(environment, "\n"), "\n"+name), name)
	}
	r.signal(syscall.SIGTERM)
	require.Equal(t, 128+15, r.code())
}

func TestNestedLocksHaveTheirOwnEnvironment(t *testing.T) {
	w := newWorld(t)
	got := w.run("lock", "/outer", "--", binary, "lock", "/inner", "--", "sh", "-c", "echo $ZKR_LOCK_PATH; env | grep -c ZKR_LOCK_PATH")
	require.Equal(t, result{0, "/inner\n1\n", ""}, got)
}

func TestIDsOfContenders(t *testing.T) {
	w := newWorld(t)
	r := w.start("lock", "/l", "--", "sleep", "60")
	data, _, _ := w.server.Get(w.awaitContenders("/l", 1)[0])
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, host+"/"+itoa(int64(r.cmd.Process.Pid)), string(data))
	w.start("lock", "/named", "--id", "night shift", "--", "sleep", "60")
	data, _, _ = w.server.Get(w.awaitContenders("/named", 1)[0])
	require.Equal(t, "night shift", string(data))
}

func TestTryFailsAtOnceAndNamesTheHolder(t *testing.T) {
	w := newWorld(t)
	lease := w.hold("/l", "web-3")
	began := time.Now()
	got := w.run("lock", "-n", "/l", "--", "touch", "ran")
	require.Equal(t, 75, got.code)
	require.Less(t, time.Since(began), 4*time.Second)
	require.Empty(t, got.stdout)
	require.Equal(t, 1, strings.Count(got.stderr, "\n"), got.stderr)
	require.Contains(t, got.stderr, `held by "web-3" at `+lease.Path())
	require.Contains(t, got.stderr, "token "+itoa(lease.FencingToken()))
	require.NoFileExists(t, w.file("ran"))
	require.Len(t, w.server.Children("/l"), 1, "nothing is left behind")
	require.NoError(t, lease.Release())
	require.Equal(t, 0, w.run("lock", "-n", "/l", "--", "touch", "ran").code)
	require.FileExists(t, w.file("ran"))
}

func TestWaitIsBounded(t *testing.T) {
	w := newWorld(t)
	w.hold("/l", "web-3")
	began := time.Now()
	got := w.run("lock", "-w", "1s", "/l", "--", "true")
	require.Equal(t, 75, got.code)
	require.GreaterOrEqual(t, time.Since(began), time.Second)
	require.Contains(t, got.stderr, "/l not acquired within 1s: held by \"web-3\"")
	require.Len(t, w.server.Children("/l"), 1)
}

func TestWaitEndsWithTheRelease(t *testing.T) {
	w := newWorld(t)
	lease := w.hold("/l", "first")
	r := w.start("lock", "-w", "1m", "/l", "--", "echo", "ran")
	w.awaitContenders("/l", 2)
	require.NoError(t, lease.Release())
	require.Equal(t, 0, r.code())
	require.Equal(t, "ran\n", r.stdout.String())
}

func TestBusyCode(t *testing.T) {
	w := newWorld(t)
	w.hold("/l", "x")
	require.Equal(t, 0, w.run("lock", "-n", "-E", "0", "/l", "--", "true").code)
	require.Equal(t, 9, w.run("lock", "-w", "1s", "-E9", "/l", "--", "true").code)
	require.Equal(t, 3, w.run("lock", "-E", "9", "/free", "--", "sh", "-c", "exit 3").code, "only of a busy lock")
}

func TestFlagsMayStandAnywhereBeforeTheDash(t *testing.T) {
	w := newWorld(t)
	w.hold("/l", "x")
	require.Equal(t, 75, w.run("lock", "/l", "-n", "--", "true").code)
	require.Equal(t, 75, w.run("-v", "lock", "/l", "--grace", "1s", "-n", "--servers", w.server.Addr(), "--", "true").code)
}

func TestWrongUsage(t *testing.T) {
	tests := [][]string{
		{},
		{"unlock"},
		{"lock"},
		{"lock", "/l"},
		{"lock", "/l", "--"},
		{"lock", "/l", "true"},
		{"lock", "--", "true"},
		{"lock", "/l", "/m", "--", "true"},
		{"lock", "relative", "--", "true"},
		{"lock", "/ends/", "--", "true"},
		{"lock", "/a//b", "--", "true"},
		{"lock", "/l", "--unknown", "--", "true"},
		{"lock", "-n", "-w", "1s", "/l", "--", "true"},
		{"lock", "-w", "0s", "/l", "--", "true"},
		{"lock", "-w", "soon", "/l", "--", "true"},
		{"lock", "-E", "256", "/l", "--", "true"},
		{"lock", "--grace", "-1s", "/l", "--", "true"},
		{"lock", "--shared", "--write", "/l", "--", "true"},
		{"lock", "--permits", "0", "/l", "--", "true"},
		{"lock", "--permits", "-1", "/l", "--", "true"},
		{"lock", "--session-timeout", "0s", "/l", "--", "true"},
		{"lock", "--servers", "a/b,c", "/l", "--", "true"},
		{"lock", "--namespace", "a//b", "/l", "--", "true"},
		{"lock", "--auth-file", "/missing", "/l", "--", "true"},
		{"lock", "--tls-ca", "/missing", "/l", "--", "true"},
		{"lock", "--tls-cert", "/missing", "/l", "--", "true"},
		{"elect", "/l"},
		{"elect", "-n", "-w", "1s", "/l", "--", "true"},
		{"lock", "-w", "1e300", "/l", "--", "true"},
		{"lock", "-w", "NaN", "/l", "--", "true"},
		{"elect", "-l", "/l", "--", "true"},
		{"elect", "-l"},
		{"ls"},
		{"ls", "/a", "/b"},
		{"ls", "-o", "xml", "/a"},
		{"revoke"},
		{"revoke", "--wait", "0s", "/a"},
		{"kick", "--yes", "/l"},
		{"kick", "/l/_c_x-lock-0000000001"},
		{"version", "please"},
	}
	for _, args := range tests {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			w := newWorld(t)
			got := w.run(args...)
			require.Equal(t, 64, got.code, got.stderr)
			require.Empty(t, got.stdout)
			require.Contains(t, got.stderr, "zkr: ")
			require.Empty(t, w.server.Children("/l"))
		})
	}
}

func TestHelpIsOnStdout(t *testing.T) {
	w := newWorld(t)
	for _, args := range [][]string{{"--help"}, {"help"}, {"lock", "--help"}, {"help", "elect"}} {
		got := w.run(args...)
		require.Equal(t, 0, got.code)
		require.Contains(t, got.stdout, "Usage:")
		require.Empty(t, got.stderr)
	}
}

// The defaults are those of the README. Environment variables replace them.
func TestDefaults(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_SERVERS=", "ZKR_SESSION_TIMEOUT=")
	help := w.run("lock", "--help").stdout
	require.Regexp(t, `--servers .*default "127\.0\.0\.1:2181"`, help)
	require.Regexp(t, `--session-timeout .*default 30s`, help)
	require.Regexp(t, `--grace .*default 5s`, help)
	w.env = append(w.env, "ZKR_SERVERS=zk9:2181", "ZKR_SESSION_TIMEOUT=7s", "ZKR_NAMESPACE=team")
	help = w.run("lock", "--help").stdout
	require.Regexp(t, `--servers .*default "zk9:2181"`, help)
	require.Regexp(t, `--session-timeout .*default 7s`, help)
	require.Regexp(t, `--namespace .*default "team"`, help)
}

// What can't be executed is found before anything is asked of a server.
func TestCommandIsLookedUpBeforeTheLock(t *testing.T) {
	w := newWorld(t)
	requests := w.server.Observe()
	defer requests.Stop()
	require.NoError(t, os.WriteFile(w.file("plain"), []byte("#!/bin/sh\n"), 0o600))
	require.NoError(t, os.WriteFile(w.file("text"), []byte("echo hello\n"), 0o700))
	require.NoError(t, os.WriteFile(w.file("empty"), nil, 0o700))
	require.NoError(t, os.WriteFile(w.file("orphan"), []byte("#!/no/such/interpreter\n"), 0o700))
	require.NoError(t, os.Mkdir(w.file("folder"), 0o700))
	for command, code := range map[string]int{
		"no-such-command": 127, "./missing": 127, "/no/such/file": 127, "": 127,
		"./plain": 126, "./text": 126, "./empty": 126, "./orphan": 126, "./folder": 126, "./plain/x": 126,
	} {
		got := w.run("lock", "/l", "--", command)
		require.Equal(t, code, got.code, "%q: %s", command, got.stderr)
		require.Empty(t, got.stdout)
		require.Contains(t, got.stderr, "zkr: ")
		require.Equal(t, code, w.run("elect", "/l", "--", command).code)
	}
	require.Zero(t, requests.Count())
}
