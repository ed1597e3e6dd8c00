//go:build linux

package main_test

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// secret writes a file that only its owner may use.
func (w *world) secret(name, text string) {
	w.Helper()
	require.NoError(w, os.WriteFile(w.file(name), []byte(text), 0o600))
}

// Zkr logs in to a server that requires a login, and its znodes belong to the same user.
func TestSASLDigest(t *testing.T) {
	t.Parallel()
	server := zktest.NewServer(t, zktest.WithSASL(map[string]string{"ann": "s:ecret"}), zktest.WithSASLRequired())
	server.Seed(zktest.Znode{Path: "/team"})
	w := &world{T: t, server: server, dir: t.TempDir(), env: []string{"ZKR_SERVERS=" + server.Addr() + "/team", "ZKR_NAMESPACE="}}
	w.secret("right", "ann:s:ecret\n")
	w.secret("wrong", "ann:guessed")
	full := []string{"--sasl", "digest", "--sasl-file", "right", "--acl", "auth::cdrwa"}
	require.Equal(t, result{3, "", ""}, w.run(append(full, "lock", "/l", "--", "sh", "-c", "exit 3")...))
	require.Equal(t, 0, w.run(append(full, "ls", "/l")...).code)
	require.NotEmpty(t, server.Children("/team"), "the chroot is the namespace")
	require.Equal(t, []zk.ACL{{Perms: zk.PermAll, Scheme: "sasl", ID: "ann"}}, server.ACL("/team/l"))

	got := w.run("--sasl", "digest", "--sasl-file", "wrong", "lock", "/l", "--", "touch", "ran")
	require.Equal(t, 69, got.code)
	require.Contains(t, got.stderr, "login refused by the server: wrong user or password")
	require.NotContains(t, got.stderr, "guessed")
	got = w.run("lock", "-w", "5s", "/l", "--", "touch", "ran")
	require.Equal(t, 69, got.code)
	require.Contains(t, got.stderr, "log in with WithSASL")
	require.NoFileExists(t, w.file("ran"))
}

// The password changes while zkr runs. Each login reads the file again, also in the listener of a latch, which runs for a whole
// term.
func TestPasswordIsReadAtEachLogin(t *testing.T) {
	for _, command := range []string{"lock", "elect", "elect --latch", "elect --priority 1"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			server := zktest.NewServer(t, zktest.WithSASL(map[string]string{"ann": "old"}), zktest.WithSASLRequired())
			w := &world{T: t, server: server, dir: t.TempDir(), env: []string{"ZKR_SERVERS=" + server.Addr(), "ZKR_NAMESPACE="}}
			w.secret("password", "ann:old")
			r := w.start(append(strings.Fields("--sasl digest --sasl-file password "+command),
				"/l", "--", "sh", "-c", "echo >> ready; while [ ! -e go ]; do sleep 0.02; done; exit 3")...)
			w.content("ready")
			server.SetPassword("ann", "new")
			w.secret("password", "ann:new")
			var logins atomic.Int32
			server.Inject(func(r zktest.Request) (none zktest.Fault) {
				if r.Op == zktest.OpMulti { // a heartbeat, which requires a login
					logins.Add(1)
				}
				return none
			})
			server.Disconnect()
			w.eventually(func() bool { return logins.Load() > 0 }, "zkr has logged in again")
			require.NoError(t, os.WriteFile(w.file("go"), nil, 0o600))
			require.Equal(t, 3, r.code(), r.stderr.String())
			require.Len(t, w.lines("ready"), 1, "one term")
			require.Empty(t, server.Children("/l"))
		})
	}
}

func TestLoginFlagsAreChecked(t *testing.T) {
	w := newWorld(t)
	w.secret("file", "ann:secret")
	w.secret("bad", "ann-secret")
	require.NoError(t, os.WriteFile(w.file("open"), []byte("digest:ann:secret"), 0o644))
	require.NoError(t, os.Chmod(w.file("open"), 0o644)) // regardless of the umask
	for want, args := range map[string][]string{
		`--sasl "plain": give digest or krb5`:          {"--sasl", "plain"},
		"--sasl digest needs --sasl-file":              {"--sasl", "digest"},
		"need --sasl digest or --sasl krb5":            {"--sasl-file", "file"},
		"bad is not one line user:password":            {"--sasl", "digest", "--sasl-file", "bad"},
		"no such file":                                 {"--sasl", "digest", "--sasl-file", "none"},
		"(mode 0644): chmod 600 open":                  {"--sasl", "digest", "--sasl-file", "open"},
		"--auth-file: open may be used by others":      {"--auth-file", "open"},
		"--krb5-keytab: open may be used by others":    {"--sasl", "krb5", "--krb5-keytab", "open", "--krb5-principal", "ann@EXAMPLE.COM"},
		"--sasl krb5: saslkrb5: invalid argument":      {"--sasl", "krb5", "--krb5-keytab", "file"},
		`--acl: "ann" is not scheme:id:permissions`:    {"--acl", "ann"},
		`--acl: "sasl:ann:x": permissions are letters`: {"--acl", "sasl:ann:x"},
		`--acl: "sasl:ann:" gives no permission`:       {"--acl", "sasl:ann:"},
		"does not follow the last server":              {"--servers", "a/x,b"},
	} {
		got := w.run(append(args, "ls", "/l")...)
		require.Equal(t, 64, got.code, "%v: %s", args, got.stderr)
		require.Contains(t, got.stderr, want)
		require.NotContains(t, got.stderr, "secret")
	}
}
