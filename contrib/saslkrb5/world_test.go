package saslkrb5_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/contrib/saslkrb5"
	"github.com/zkrecipes/zkrecipes/recipes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	realm    = "EXAMPLE.COM"
	patience = time.Minute
)

// world is a KDC of MIT Kerberos on 127.0.0.1, and the files of its realm.
type world struct {
	*testing.T
	dir     string
	kdcPort int
	stopKDC func()
}

func newWorld(t *testing.T, settings ...string) *world {
	t.Helper()
	w := &world{T: t, dir: t.TempDir(), kdcPort: freePort(t)}
	w.write("krb5.conf", fmt.Sprintf(`[libdefaults]
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
`, realm, strings.Join(settings, "\n\t"), realm, w.kdcPort, realm))
	w.write("kdc.conf", fmt.Sprintf(`[kdcdefaults]
	kdc_listen = 127.0.0.1:%d
	kdc_tcp_listen = 127.0.0.1:%d
[realms]
	%s = {
		database_name = %s/principal
		key_stash_file = %s/stash
		acl_file = %s/kadm5.acl
	}
`, w.kdcPort, w.kdcPort, realm, w.dir, w.dir, w.dir))
	w.run("kdb5_util", "create", "-s", "-r", realm, "-P", "master")
	for _, query := range []string{
		"addprinc -pw secret +requires_preauth ann", "addprinc -randkey zookeeper/localhost", "addprinc -randkey keeper",
		"ktadd -norandkey -k " + w.path("ann.keytab") + " ann", "ktadd -k " + w.path("server.keytab") + " zookeeper/localhost",
	} {
		w.run("kadmin.local", "-r", realm, "-q", query)
	}
	w.startKDC()
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) write(name, text string) {
	w.Helper()
	require.NoError(w, os.WriteFile(w.path(name), []byte(text), 0o600))
}

func (w *world) env() []string {
	return append(os.Environ(), "KRB5_CONFIG="+w.path("krb5.conf"), "KRB5_KDC_PROFILE="+w.path("kdc.conf"))
}

func (w *world) run(name string, args ...string) {
	w.Helper()
	w.runWith("", name, args...)
}

func (w *world) runWith(input, name string, args ...string) {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), name, args...)
	cmd.Env, cmd.Stdin = w.env(), bytes.NewBufferString(input)
	out, err := cmd.CombinedOutput()
	require.NoError(w, err, "%s %v: %s", name, args, out)
}

// startKDC starts the KDC, under another program if one is given.
func (w *world) startKDC(under ...string) {
	w.Helper()
	args := append(under, "krb5kdc", "-n", "-r", realm) //nolint:gocritic // a new list
	w.stopKDC = w.start(args...)
	w.awaitPort(w.kdcPort)
}

// start starts a program, which is ended at the end of the test at the latest.
func (w *world) start(args ...string) (stop func()) {
	w.Helper()
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // ended by stop
	cmd.Env = w.env()
	cmd.SysProcAttr = ownGroup()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(w, cmd.Start())
	stop = sync.OnceFunc(func() {
		endGroup(cmd.Process.Pid)
		_ = cmd.Wait()
		if w.Failed() {
			w.Logf("%v:\n%s", args, out.String())
		}
	})
	w.Cleanup(stop)
	return stop
}

func (w *world) awaitPort(port int) {
	w.Helper()
	require.Eventually(w, func() bool {
		conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, patience, 50*time.Millisecond)
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

// startServer starts a real ZooKeeper that demands a login with Kerberos, and returns its address.
func (w *world) startServer() string {
	w.Helper()
	port := freePort(w.T)
	w.write("jaas.conf", fmt.Sprintf(`Server {
	com.sun.security.auth.module.Krb5LoginModule required
	useKeyTab=true keyTab="%s" storeKey=true useTicketCache=false isInitiator=false principal="zookeeper/localhost@%s";
};
`, w.path("server.keytab"), realm))
	w.write("zoo.cfg", fmt.Sprintf("tickTime=500\ndataDir=%s/data\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxSessionTimeout=60000\n"+
		"authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n", w.dir, port))
	jars := "/usr/share/java/"
	w.start("java", "-Xmx128m", "-XX:+UseSerialGC", "-Dzookeeper.forceSync=no", "-Dzookeeper.sessionRequireClientSASLAuth=true",
		"-Djava.security.krb5.conf="+w.path("krb5.conf"), "-Djava.security.auth.login.config="+w.path("jaas.conf"),
		"-cp", jars+"zookeeper.jar:"+jars+"slf4j-simple.jar", "org.apache.zookeeper.server.quorum.QuorumPeerMain", w.path("zoo.cfg"))
	w.awaitPort(port)
	return fmt.Sprint("localhost:", port)
}

// mechanism returns the mechanism of a configuration, with the realm's files.
func (w *world) mechanism(cfg saslkrb5.Config) recipes.Option {
	w.Helper()
	cfg.ConfigFile = w.path("krb5.conf")
	m, err := saslkrb5.New(cfg)
	require.NoError(w, err)
	return recipes.WithSASL(m)
}

// connect connects, and closes the client at the end of the test.
func (w *world) connect(server string, opts ...recipes.Option) (*recipes.Client, error) {
	w.Helper()
	client, err := recipes.Connect(w.Context(), []string{server}, append([]recipes.Option{
		recipes.WithConnectTimeout(patience), recipes.WithSessionTimeout(12 * time.Second),
	}, opts...)...)
	if err == nil {
		w.Cleanup(func() { require.NoError(w, client.Close()) })
	}
	return client, err
}
