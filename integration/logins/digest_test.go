package logins_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/conformance"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(ensemble.Main(m)) }

const (
	sessionTimeout = 12 * time.Second
	loginRequired  = "-Dzookeeper.sessionRequireClientSASLAuth=true"
)

// noFIPS is needed for DIGEST-MD5 on 3.9.6, where the FIPS mode, which is the default from 3.9 on, forbids it.
const noFIPS = "-Dzookeeper.fips-mode=false"

// digestServer is a real server whose users log in with DIGEST-MD5: conformance.LoginUsers, and a user outside ASCII.
func digestServer(t *testing.T, flags ...string) *ensemble.Ensemble {
	t.Helper()
	jaas := `Server {
	org.apache.zookeeper.server.auth.DigestLoginModule required
	user_ann="secret" user_bob="other" user_änn="sécret" user_安="密码";
};
`
	return ensemble.New(t, ensemble.Config{
		Private:    true,
		Files:      map[string][]byte{"/conf/jaas.conf": []byte(jaas)},
		JVMFlags:   append(flags, "-Dzookeeper.forceSync=no", "-Djava.security.auth.login.config=/conf/jaas.conf", "-Dfile.encoding=UTF-8"),
		Properties: map[string]string{"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"},
	})
}

// lines plays the logins that zktest's tests play, too.
func lines(t *testing.T, address string) []string {
	t.Helper()
	all, err := conformance.Logins(func() (net.Conn, error) { return net.DialTimeout("tcp", address, 10*time.Second) })
	require.NoError(t, err)
	return all
}

// connect returns a client of a server, closed at the end of the test.
func connect(t *testing.T, server string, opts ...recipes.Option) *recipes.Client {
	t.Helper()
	return testclient.Dial(t, []string{server}, append([]recipes.Option{recipes.WithSessionTimeout(sessionTimeout)}, opts...)...)
}

func newMutex(t *testing.T, client *recipes.Client) *mutex.InterProcessMutex {
	t.Helper()
	m, err := mutex.New(client, testkit.Path(t))
	require.NoError(t, err)
	return m
}

// refuses requires that Connect fails, soon and with a name.
func refuses(t *testing.T, server, want string, opts ...recipes.Option) {
	t.Helper()
	beganAt := time.Now()
	_, err := recipes.Connect(t.Context(), []string{server}, append(opts, recipes.WithConnectTimeout(time.Minute))...)
	require.ErrorIs(t, err, recipes.ErrLoginRefused)
	require.ErrorContains(t, err, want)
	require.NotContains(t, err.Error(), "Wr0ng")
	require.Less(t, time.Since(beganAt), 30*time.Second)
}

func sasl(user, password string) recipes.Option {
	return recipes.WithSASL(recipes.DigestMD5(user, password))
}

// outlivesReconnects acquires a lock, requires that the lease survives 20 reconnects, and returns it.
func outlivesReconnects(t *testing.T, server string, opts ...recipes.Option) *recipes.Lease {
	t.Helper()
	proxy := faultproxy.New(t, server)
	client := connect(t, proxy.Addr(), opts...)
	lease, err := newMutex(t, client).Acquire(testkit.Context(t))
	require.NoError(t, err)
	states, stop := client.Subscribe()
	defer stop()
	other := newMutex(t, client)
	for range 20 {
		proxy.Cut()
		for state := range states {
			if state == recipes.Reconnected {
				break
			}
		}
		// Connections that serve nothing would be replaced more and more rarely.
		require.NoError(t, other.Do(testkit.Context(t), func(context.Context, *recipes.Lease) error { return nil }))
	}
	require.NoError(t, context.Cause(lease.Context()))
	return lease
}

// A server that demands logins: every client logs in on each connection, and the lease outlives 20 reconnects.
func TestDigestIsRequired(t *testing.T) {
	server := digestServer(t, loginRequired, noFIPS).Server(0)
	require.Equal(t, conformance.LoginLines(conformance.LoginsRequired), lines(t, server))

	lease := outlivesReconnects(t, server, sasl("ann", "secret"), recipes.WithACL(zk.ACL{Perms: zk.PermAll, Scheme: "sasl", ID: "ann"}))
	other := connect(t, server, sasl("bob", "other"))
	_, _, err := other.Conn().Get(lease.Path())
	require.ErrorIs(t, err, zk.ErrNoAuth, "ann's alone")
	require.NoError(t, lease.Release())

	connect(t, server, sasl("änn", "sécret"))
	connect(t, server, sasl("安", "密码"))
	refuses(t, server, "SASL login: login refused by the server: wrong user or password", sasl("ann", "Wr0ng"))
	without := connect(t, server)
	_, err = newMutex(t, without).Acquire(testkit.Context(t))
	require.ErrorIs(t, err, recipes.ErrLoginRefused)
	require.ErrorContains(t, err, "log in with WithSASL")
}

// Servers with and without logins.
func TestDigestIsOptional(t *testing.T) {
	server := digestServer(t, noFIPS).Server(0)
	require.Equal(t, conformance.LoginLines(conformance.LoginsOptional), lines(t, server))
	refuses(t, server, "wrong user or password", sasl("ann", "Wr0ng"))
	lease, err := newMutex(t, connect(t, server, sasl("bob", "other"))).Acquire(testkit.Context(t))
	require.NoError(t, err)
	require.NoError(t, lease.Release())

	plain := ensemble.New(t, ensemble.Config{Private: true}).Server(0)
	require.Equal(t, conformance.LoginLines(conformance.LoginsUnknown), lines(t, plain))
	refuses(t, plain, "the server offers no SASL login", sasl("ann", "Wr0ng"))
}

// enforce.auth accepts other schemes as well. A credential is enough if the server lists its scheme.
func TestCredentialIsEnforced(t *testing.T) {
	server := digestServer(t, noFIPS, "-Dzookeeper.enforce.auth.enabled=true", "-Dzookeeper.enforce.auth.schemes=digest,sasl").Server(0)
	for _, login := range []recipes.Option{sasl("ann", "secret"), recipes.WithAuth("digest", []byte("ann:secret"))} {
		lease, err := newMutex(t, connect(t, server, login)).Acquire(testkit.Context(t))
		require.NoError(t, err)
		require.NoError(t, lease.Release())

		opened, err := recipes.Open([]string{server}, login)
		require.NoError(t, err)
		lease, err = newMutex(t, opened).Acquire(testkit.Context(t))
		require.NoError(t, err)
		require.NoError(t, lease.Release())
		require.NoError(t, opened.Close())
	}
	refuses(t, server, "wrong user or password", sasl("ann", "Wr0ng"))
}

// A server that keeps clients after a refused login (allowSaslFailedClients). The refusal is an error even so.
func TestDigestFailsWhereTheServerContinues(t *testing.T) {
	server := digestServer(t, noFIPS, "-Dzookeeper.allowSaslFailedClients=true").Server(0)
	refuses(t, server, "wrong user or password", sasl("ann", "Wr0ng"))
	connect(t, server, sasl("ann", "secret"))
}

// A server in FIPS mode refuses DIGEST-MD5 from ZOOKEEPER-5043 on: 3.9.6 does, 3.9.3 does not.
func TestDigestInFIPSMode(t *testing.T) {
	server := digestServer(t, "-Dzookeeper.fips-mode=true").Server(0)
	client, err := recipes.Connect(t.Context(), []string{server}, sasl("ann", "secret"), recipes.WithConnectTimeout(time.Minute))
	if err == nil {
		require.NoError(t, client.Close())
		return
	}
	require.ErrorIs(t, err, recipes.ErrLoginRefused)
	require.ErrorContains(t, err, "FIPS mode")
}
