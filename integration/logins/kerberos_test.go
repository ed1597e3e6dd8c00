package logins_test

import (
	"os"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/contrib/saslkrb5"
	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/logins"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// A server of the chosen release that demands Kerberos. The tests of contrib/saslkrb5 have a server of the machine's own release.
func TestKerberosIsRequired(t *testing.T) {
	kdc := logins.StartKDC(t)
	files := map[string][]byte{"/conf/jaas.conf": []byte("Server {\n" + logins.Kerberos("/conf/server.keytab") + "\n};\n")}
	for _, name := range []string{"krb5.conf", "server.keytab"} {
		content, err := os.ReadFile(kdc.Path(name))
		require.NoError(t, err)
		files["/conf/"+name] = content
	}
	server := ensemble.New(t, ensemble.Config{
		Private:    true,
		Files:      files,
		JVMFlags:   []string{loginRequired, "-Dzookeeper.forceSync=no", "-Djava.security.auth.login.config=/conf/jaas.conf", "-Djava.security.krb5.conf=/conf/krb5.conf"},
		Properties: map[string]string{"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"},
	}).Server(0)
	login := func(password string) recipes.Option {
		mechanism, err := saslkrb5.New(saslkrb5.Config{Principal: "ann", Password: password, ConfigFile: kdc.Path("krb5.conf"), Service: "zookeeper/localhost"})
		require.NoError(t, err)
		return recipes.WithSASL(mechanism)
	}
	lease := outlivesReconnects(t, server, login("secret"), recipes.WithACL(zk.ACL{Perms: zk.PermAll, Scheme: "sasl", ID: "ann@" + logins.Realm}))
	require.NoError(t, lease.Release())
	_, err := newMutex(t, connect(t, server)).Acquire(testkit.Context(t))
	require.ErrorIs(t, err, recipes.ErrLoginRefused)
	refuses(t, server, "the KDC does not accept the principal with this password or keytab", login("Wr0ng"))
}
