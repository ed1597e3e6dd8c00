//go:build integration && linux

package main_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/logins"
)

// requireRefused runs a lock whose login fails: zkr exits with 69 and names the reason, without the password, and the command does not run.
func (w *world) requireRefused(reason string, flags ...string) {
	w.Helper()
	got := w.run(append(flags, "lock", "/l", "--", "touch", "ran")...)
	require.Equal(w, 69, got.code, got.stderr)
	require.Contains(w, got.stderr, reason)
	require.NotContains(w, got.stderr, "guessed")
	require.NoFileExists(w, w.file("ran"))
}

// A real server that demands DIGEST-MD5.
func TestZooKeeperDigestLogin(t *testing.T) {
	w := &world{T: t, dir: t.TempDir(), env: []string{"ZKR_SERVERS=" + logins.StartDigest(t), "ZKR_SASL=digest", "ZKR_SASL_FILE=right"}}
	w.secret("right", "ann:s:ecret\n")
	w.secret("wrong", "ann:guessed")
	require.Equal(t, result{3, "", ""}, w.run("--acl", "auth::cdrwa", "lock", "/l", "--", "sh", "-c", "exit 3"))
	w.requireRefused("login refused by the server: wrong user or password", "--sasl-file", "wrong")
	w.env = w.env[:1]
	w.requireRefused("log in with WithSASL")
}

// A real server that demands Kerberos: with the ticket of kinit, and with a keytab.
func TestZooKeeperKerberosLogin(t *testing.T) {
	kdc := logins.StartKDC(t)
	w := &world{T: t, dir: t.TempDir(), env: []string{
		"ZKR_SERVERS=" + kdc.StartZooKeeper(), "ZKR_SASL=krb5", "ZKR_ACL=auth::cdrwa",
		"KRB5_CONFIG=" + kdc.Path("krb5.conf"), "KRB5CCNAME=FILE:" + kdc.Path("cache"),
	}}
	keytab := func(user string) []string {
		return []string{"--krb5-principal", user + "@" + logins.Realm, "--krb5-keytab", kdc.Path(user + ".keytab")}
	}
	kdc.Kinit("cache")
	require.Equal(t, result{3, "", ""}, w.run("lock", "/l", "--", "sh", "-c", "exit 3"))
	require.Equal(t, result{4, "", ""}, w.run(append(keytab("ann"), "lock", "/l", "--", "sh", "-c", "exit 4")...), "as the same user: the znode is ann's alone")

	kdc.Admin("addprinc -pw old eve")
	kdc.Admin("ktadd -norandkey -k " + kdc.Path("eve.keytab") + " eve")
	kdc.Admin("cpw -pw new eve")
	w.requireRefused("the KDC does not accept the principal with this password or keytab", keytab("eve")...)

	kdc.Kinit("short", "-l", "1s")
	w.env = append(w.env, "KRB5CCNAME="+kdc.Path("short"))
	w.eventually(func() bool { return exec.Command("klist", "-s", "-c", kdc.Path("short")).Run() != nil }, "the ticket expires")
	w.requireRefused("the ticket has expired")
}
