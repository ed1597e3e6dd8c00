//go:build unix

package logins

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Realm is the name of the realm.
const Realm = "EXAMPLE.COM"

// KDC is a KDC of MIT Kerberos, and the files of its realm. It knows the user ann, whose password is "secret" and whose key is in
// the file ann.keytab, and the services zookeeper/localhost and keeper. Path("krb5.conf") is the configuration of clients.
type KDC struct {
	folder

	port int
	stop func()
}

// StartKDC makes a realm and starts its KDC. The settings go to the clients' section libdefaults.
func StartKDC(tb testing.TB, settings ...string) *KDC {
	tb.Helper()
	k := &KDC{folder: folder{TB: tb, dir: tb.TempDir()}}
	k.port = k.freePort()
	k.env = []string{"KRB5_CONFIG=" + k.Path("krb5.conf"), "KRB5_KDC_PROFILE=" + k.Path("kdc.conf")}
	k.write("krb5.conf", fmt.Sprintf(`[libdefaults]
	default_realm = %s
	dns_lookup_kdc = false
	dns_lookup_realm = false
	rdns = false
	udp_preference_limit = 1
	default_tkt_enctypes = aes256-cts-hmac-sha1-96
	default_tgs_enctypes = aes256-cts-hmac-sha1-96
	permitted_enctypes = aes256-cts-hmac-sha1-96
	%s
[realms]
	%s = {
		kdc = 127.0.0.1:%d
	}
[domain_realm]
	localhost = %s
`, Realm, strings.Join(settings, "\n\t"), Realm, k.port, Realm))
	k.write("kdc.conf", fmt.Sprintf(`[kdcdefaults]
	kdc_listen = 127.0.0.1:%d
	kdc_tcp_listen = 127.0.0.1:%d
[realms]
	%s = {
		database_name = %s/principal
		key_stash_file = %s/stash
		acl_file = %s/kadm5.acl
	}
`, k.port, k.port, Realm, k.dir, k.dir, k.dir))
	k.run("", "kdb5_util", "create", "-s", "-r", Realm, "-P", "master")
	k.Admin("addprinc -pw secret +requires_preauth ann")
	k.Admin("addprinc -randkey zookeeper/localhost")
	k.Admin("addprinc -randkey keeper")
	k.Admin("ktadd -norandkey -k " + k.Path("ann.keytab") + " ann")
	k.Admin("ktadd -k " + k.Path("server.keytab") + " zookeeper/localhost")
	k.Start()
	return k
}

// Admin gives an order to the administration of the realm.
func (k *KDC) Admin(order string) {
	k.Helper()
	k.run("", "kadmin.local", "-r", Realm, "-q", order)
}

// Kinit writes a ticket of ann into the file cache, with further flags of kinit.
func (k *KDC) Kinit(cache string, flags ...string) {
	k.Helper()
	k.run("secret\n", "kinit", append(flags, "-c", k.Path(cache), "ann")...)
}

func (k *KDC) run(input, name string, args ...string) {
	k.Helper()
	cmd := exec.CommandContext(k.Context(), name, args...)
	cmd.Env, cmd.Stdin = append(os.Environ(), k.env...), bytes.NewBufferString(input)
	out, err := cmd.CombinedOutput()
	require.NoError(k, err, "%s %v: %s", name, args, out)
}

// Start starts the KDC: again after Stop, and under another program if one is given.
func (k *KDC) Start(under ...string) {
	k.Helper()
	k.stop = k.start(append(under, "krb5kdc", "-n", "-r", Realm)...)
	k.awaitPort(k.port)
}

// Stop stops the KDC.
func (k *KDC) Stop() { k.stop() }

// StartZooKeeper starts a real ZooKeeper that demands Kerberos, and returns its address.
func (k *KDC) StartZooKeeper() string {
	k.Helper()
	return k.startZooKeeper(Kerberos(k.Path("server.keytab")), "-Djava.security.krb5.conf="+k.Path("krb5.conf"))
}

// Kerberos returns the modules of a JAAS section Server for the principal zookeeper/localhost, whose key is in a file.
func Kerberos(keytab string) string {
	return fmt.Sprintf(`com.sun.security.auth.module.Krb5LoginModule required
	useKeyTab=true keyTab="%s" storeKey=true useTicketCache=false isInitiator=false principal="zookeeper/localhost@%s";`, keytab, Realm)
}
