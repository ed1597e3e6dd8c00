//go:build linux

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// deadAddress is an address without a listener. A socket keeps its port, so that no other server gets it during the test.
func deadAddress(t *testing.T) string {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(socket)) })
	require.NoError(t, unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := unix.Getsockname(socket)
	require.NoError(t, err)
	return fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
}

// The time to wait also bounds connecting, to a server that refuses and to a silent one.
func TestUnreachable(t *testing.T) {
	for name, prepare := range map[string]func(*world) string{
		"refused": func(w *world) string { return deadAddress(w.T) },
		"silent":  func(w *world) string { w.server.Freeze(); return w.server.Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			servers := prepare(w)
			began := time.Now()
			got := w.run("lock", "--servers", servers, "-w", "300ms", "/l", "--", "true")
			require.Equal(t, 69, got.code)
			require.Less(t, time.Since(began), 5*time.Second)
			require.Empty(t, got.stdout)
			require.Contains(t, got.stderr, "connect "+servers)
			require.Equal(t, 69, w.run("lock", "--servers", servers, "-n", "-E", "9", "/l", "--", "true").code, "-E is for a busy lock")
			require.Less(t, time.Since(began), 20*time.Second)
		})
	}
}

// If a server falls silent after the handshake, the lock counts as not acquired within the time.
func TestSilentAfterTheConnect(t *testing.T) {
	w := newWorld(t)
	w.server.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == zktest.OpConnect || r.Op == zktest.OpPing {
			return zktest.Fault{}
		}
		return zktest.Fault{Lost: zktest.NoAnswer}
	})
	got := w.run("lock", "-w", "1s", "/l", "--", "true")
	require.Equal(t, 75, got.code, got.stderr)
	require.Contains(t, got.stderr, "not acquired within 1s")
}

func TestFlagsAreStrongerThanTheEnvironment(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_SERVERS="+deadAddress(t), "ZKR_NAMESPACE=wrong", "ZKR_SESSION_TIMEOUT=1h")
	r := w.start("lock", "--servers", "127.0.0.1:1,"+w.server.Addr(), "--namespace", "right/here", "--session-timeout", "7s", "--grace", "1s", "/l", "--", "sleep", "60")
	w.awaitContenders("/right/here/l", 1)
	require.Equal(t, 7*time.Second, w.server.Sessions()[0].Timeout)
	_ = r
}

// TestSpacesAroundServers: they are not part of a name, nor of the path behind, as in a client of package recipes with the same text.
func TestSpacesAroundServers(t *testing.T) {
	w := newWorld(t)
	front := newTalkative(w, srvr("3.9.4", "leader"), "")
	w.server.Put("/app", nil)
	client, err := recipes.Connect(t.Context(), []string{" " + w.server.Addr() + "/app "})
	require.NoError(t, err)
	w.Cleanup(func() { require.NoError(t, client.Close()) })
	lease := w.holdWith(client, "/l", "ann")
	_, stat, _ := w.server.Get(lease.Path())
	front.answerCons(fmt.Sprintf(" /10.0.0.5:43210[1](queued=0,sid=0x%x,lop=PING)\n", stat.EphemeralOwner))
	w.env = append(w.env, "ZKR_SERVERS= "+front.Addr().String()+"/app ")
	got := w.run("lock", "-n", "/l", "--", "true")
	require.Equal(t, 75, got.code, got.stderr)
	got = w.run("who", "/l")
	require.Equal(t, 0, got.code, got.stderr)
	require.Contains(t, got.stdout, `10.0.0.5:43210  "ann" at /l/`)
}

// A typo in a chroot is no other lock: each command says so, and nothing is made.
func TestChrootHasToExist(t *testing.T) {
	w := newWorld(t)
	w.server.Put("/team", nil)
	for _, chroot := range []string{"/typo", "/team/typo"} {
		servers := w.server.Addr() + chroot
		for _, command := range [][]string{
			{"lock", "-n", "/l", "--", "touch", "ran"},
			{"lock", "/l", "--", "touch", "ran"},
			{"elect", "/l", "--", "touch", "ran"},
			{"once", "--at", "1", "/l", "--", "touch", "ran"},
			{"ls", "/"},
			{"who", "/l"},
			{"revoke", "/l"},
		} {
			got := w.run(append([]string{"--servers", servers, "--namespace", "shop"}, command...)...)
			require.Equal(t, 64, got.code, "%v", command)
			require.Contains(t, got.stderr, "the chroot "+chroot+" does not exist: create it, or use --namespace")
		}
		require.NoFileExists(t, w.file("ran"))
		got := w.run("doctor", "--servers", servers)
		require.Equal(t, 2, got.code)
		require.Contains(t, got.stdout, "bad    chroot "+chroot+": it does not exist")
	}
	require.Equal(t, []string{"team", "zookeeper"}, w.server.Children("/"))
	require.Equal(t, 0, w.run("--servers", w.server.Addr()+"/team", "--namespace", "shop", "lock", "/l", "--", "true").code)
	require.Equal(t, []string{"l"}, w.server.Children("/team/shop"))
}

func TestWrongEnvironment(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_SESSION_TIMEOUT=soon")
	got := w.run("ls", "/")
	require.Equal(t, 64, got.code)
	require.Contains(t, got.stderr, "ZKR_SESSION_TIMEOUT")
}

// protect makes a directory that only one user may use.
func protect(w *world, path string) {
	w.Helper()
	acl := zk.DigestACL(zk.PermAll, "ann", "secret")
	client := w.client(recipes.WithAuth("digest", []byte("ann:secret")))
	_, err := client.Conn().Create(path, nil, 0, acl)
	require.NoError(w, err)
}

func TestAuthFile(t *testing.T) {
	w := newWorld(t)
	protect(w, "/l")
	require.NoError(t, os.WriteFile(w.file("right"), []byte("# of ann\n\ndigest:ann:secret\n"), 0o600))
	require.NoError(t, os.WriteFile(w.file("wrong"), []byte("digest:ann:guessed\n"), 0o600))
	require.NoError(t, os.WriteFile(w.file("broken"), []byte("ann-secret\n"), 0o600))
	require.Equal(t, 0, w.run("lock", "--auth-file", "right", "/l", "--", "true").code)
	for _, args := range [][]string{{}, {"--auth-file", "wrong"}} {
		got := w.run(append(args, "lock", "/l", "--", "touch", "ran")...)
		require.Equal(t, 69, got.code)
		require.Contains(t, got.stderr, "/l")
		require.Equal(t, 69, w.run(append(args, "ls", "/l")...).code)
		require.Equal(t, 69, w.run(append(args, "elect", "/l", "--", "touch", "ran")...).code)
	}
	require.NoFileExists(t, w.file("ran"))
	w.env = append(w.env, "ZKR_AUTH_FILE=right")
	require.Equal(t, 0, w.run("lock", "/l", "--", "true").code)
	require.Equal(t, 69, w.run("lock", "--auth-file", "wrong", "/l", "--", "true").code, "the flag is stronger")
	got := w.run("--auth-file", "broken", "ls", "/l")
	require.Equal(t, 64, got.code)
	require.Contains(t, got.stderr, "line 1")
	require.NotContains(t, got.stderr, "ann-secret", "it may be a password")
}

// Editors write byte order marks, and a credential such as a token may be long.
func TestAuthFileOfOtherEditors(t *testing.T) {
	w := newWorld(t)
	protect(w, "/l")
	ann := "digest:ann:secret"
	for name, content := range map[string]string{
		"byte order mark": "\uFEFF" + ann + "\n",
		"carriage return": "\uFEFF# of ann\r\n" + ann + "\r\n",
		"no newline":      ann,
		"long line first": "digest:bob:" + strings.Repeat("x", 70<<10) + "\n" + ann + "\n",
	} {
		require.NoError(t, os.WriteFile(w.file("auth"), []byte(content), 0o600))
		got := w.run("lock", "--auth-file", "auth", "/l", "--", "true")
		require.Equal(t, 0, got.code, "%s: %s", name, got.stderr)
	}
	require.NoError(t, os.WriteFile(w.file("auth"), []byte("\xff\xfed\x00i\x00"), 0o600))
	got := w.run("ls", "--auth-file", "auth", "/l")
	require.Equal(t, 64, got.code)
	require.Contains(t, got.stderr, "UTF-16")
}

// A password in the list of servers is a mistake that must not end in a log.
func TestServersWithAPassword(t *testing.T) {
	w := newWorld(t)
	for _, command := range [][]string{{"ls", "/l"}, {"doctor"}, {"lock", "/l", "--", "true"}} {
		got := w.run(append([]string{"-v", "--servers", "zk1:2181,ann:secret@" + w.server.Addr()}, command...)...)
		require.Equal(t, 64, got.code, command)
		require.NotContains(t, got.stdout+got.stderr, "secret", command)
	}
}

// A verbose zkr logs to stderr, and no secret.
func TestVerbose(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, os.WriteFile(w.file("auth"), []byte("digest:ann:secret\n"), 0o600))
	got := w.run("-v", "--auth-file", "auth", "lock", "/l", "--", "echo", "out")
	require.Equal(t, 0, got.code)
	require.Equal(t, "out\n", got.stdout)
	require.Contains(t, got.stderr, "level=DEBUG")
	require.NotContains(t, got.stderr, "secret")
}

// A path used by another recipe is refused, and zkr leaves nothing there.
func TestOtherKindsAreRefused(t *testing.T) {
	for marker, kind := range map[string]string{"latch-": "latch", "__READ__": "rwlock", "__WRIT__": "rwlock"} {
		t.Run(marker, func(t *testing.T) {
			w := newWorld(t)
			session := w.server.OpenSession(time.Hour)
			w.server.Seed(zktest.Znode{Path: "/l/_c_x-" + marker + "0000000001", Session: session})
			for _, command := range []string{"lock", "elect"} {
				if command == "elect" && kind == "latch" {
					continue // stands for election as one
				}
				got := w.run(command, "/l", "--", "touch", "ran")
				require.Equal(t, 64, got.code)
				require.Contains(t, got.stderr, "used as a "+kind)
			}
			require.Len(t, w.server.Children("/l"), 1)
			require.NoFileExists(t, w.file("ran"))
		})
	}
	w := &world{T: t, server: zktest.NewServer(t), dir: t.TempDir()}
	w.env = []string{"ZKR_SERVERS=" + w.server.Addr()}
	session := w.server.OpenSession(time.Hour)
	w.server.Seed(zktest.Znode{Path: "/s/leases/_c_x-lease-0000000001", Session: session})
	require.Equal(t, 64, w.run("lock", "/s", "--", "true").code)
}

// Zkr does not hang without a reader of its output.
func TestStderrWithoutAReader(t *testing.T) {
	w := newWorld(t)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer func() { require.NoError(t, read.Close()) }()
	_, err = write.Write([]byte(strings.Repeat("x", 1<<16))) // the pipe is full
	require.NoError(t, err)
	w.env = append(w.env, "ZKR_SESSION_TIMEOUT=4s")
	r := w.startWith(func(c *exec.Cmd) { c.Stderr = write }, "lock", "/l", "--", "sh", "-c", "echo > ready; sleep 60")
	require.NoError(t, write.Close())
	w.content("ready")
	log := w.server.Observe()
	awaitHeartbeats(t, log, 8) // T/6 apart: for longer than a session
	w.server.Delete(w.awaitContenders("/l", 1)[0])
	require.Equal(t, 74, r.code())
}
