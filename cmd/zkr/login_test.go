package main_test

import (
	"os"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// secret writes a file that its owner alone may use.
func (w *world) secret(name, text string) {
	w.Helper()
	require.NoError(w, os.WriteFile(w.file(name), []byte(text), 0o600))
}

// A server that demands a login: zkr logs in, and its znodes are for the same user.
func TestSASLDigest(t *testing.T) {
	t.Parallel()
	server := zktest.NewServer(t, zktest.WithSASL(map[string]string{"ann": "s:ecret"}), zktest.WithSASLRequired())
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

func TestLoginFlagsAreChecked(t *testing.T) {
	w := newWorld(t)
	w.secret("file", "ann:secret")
	w.secret("bad", "ann-secret")
	require.NoError(t, os.WriteFile(w.file("open"), []byte("digest:ann:secret"), 0o644))
	require.NoError(t, os.Chmod(w.file("open"), 0o644)) // whatever the umask
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
		"is not behind the last server":                {"--servers", "a/x,b"},
	} {
		got := w.run(append(args, "ls", "/l")...)
		require.Equal(t, 64, got.code, "%v: %s", args, got.stderr)
		require.Contains(t, got.stderr, want)
		require.NotContains(t, got.stderr, "secret")
	}
}
