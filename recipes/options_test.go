package recipes

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

func noDial(string, string, time.Duration) (net.Conn, error) { return nil, net.ErrClosed }

func TestDefaults(t *testing.T) {
	cfg, err := configure(nil)
	require.NoError(t, err)
	require.Equal(t, 15*time.Second, cfg.connectTimeout)
	require.Equal(t, 10*time.Second, cfg.OperationTimeout)
	require.Equal(t, zkutil.Retry{InitialInterval: 50 * time.Millisecond, MaxInterval: 2 * time.Second}, cfg.Retry)
	require.Equal(t, zk.WorldACL(zk.PermAll), cfg.ACL)
	require.Nil(t, cfg.Logger, "slog.Default(), when something is logged")
	require.False(t, cfg.SuspendEnds, "SessionErrorPolicy")
	require.Empty(t, cfg.namespace)
	require.Equal(t, 30*time.Second, cfg.SessionTimeout)
}

func TestOptionsRefuseBadInput(t *testing.T) {
	for want, opt := range map[string]Option{
		"nil option":                   nil,
		"session timeout: 0s":          WithSessionTimeout(0),
		"session timeout: -1s":         WithSessionTimeout(-time.Second),
		"session timeout: 1µs":         WithSessionTimeout(time.Microsecond),
		"connect timeout: 0s":          WithConnectTimeout(0),
		"operation timeout: -1ns":      WithOperationTimeout(-1),
		"retry policy: negative":       WithRetryPolicy(RetryPolicy{MaxAttempts: -1}),
		"negative field":               WithRetryPolicy(RetryPolicy{MaxElapsed: -1}),
		"policy: negative field":       WithRetryPolicy(RetryPolicy{InitialInterval: -1}),
		"y: negative field":            WithRetryPolicy(RetryPolicy{MaxInterval: -1}),
		"acl: empty":                   WithACL(),
		"auth: empty scheme":           WithAuth("", []byte("x")),
		"but this one has no colon":    WithAuth("digest", []byte("secret")),
		"tls: nil":                     WithTLS(nil),
		"dialer: nil":                  WithDialer(nil),
		"logger: nil":                  WithLogger(nil),
		"error policy: unknown value":  WithErrorPolicy(7),
		"id: empty":                    WithID(""),
		"id of 65537 bytes: more than": WithID(strings.Repeat("x", 64<<10+1)),
		"slow wait: -1ns is negative":  WithSlowWait(-1),
		"slow hold: -1ns is negative":  WithSlowHold(-1),
		"max session bytes: 0 is":      WithMaxSessionBytes(0),
		"max session bytes: -1 is":     WithMaxSessionBytes(-1),
		`invalid path "//a"`:           WithNamespace("//a"),
		`invalid path "/a/"`:           WithNamespace("a/"),
		`"/zookeeper"`:                 WithNamespace("zookeeper"),
		`"/.."`:                        WithNamespace(".."),
	} {
		_, err := Connect(t.Context(), []string{"localhost"}, WithDialer(noDial), opt)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "recipes: connect localhost: ")
		require.ErrorIs(t, err, ErrInvalidArgument)
		_, err = Open([]string{"localhost"}, opt)
		require.ErrorContains(t, err, want)
	}
}

// The longest id, and no slow wait at all, are valid.
func TestOptionsAcceptTheirLimits(t *testing.T) {
	cfg, err := configure([]Option{WithID(strings.Repeat("x", 64<<10)), WithSlowWait(0)})
	require.NoError(t, err)
	require.Len(t, cfg.ID, 64<<10)
	require.Zero(t, cfg.SlowWait)
}

func TestConnectRefusesBadServers(t *testing.T) {
	for _, test := range []struct {
		servers []string
		want    string
	}{
		{nil, "no servers given"},
		{[]string{}, "no servers given"},
		{[]string{""}, "no servers given"},
		{[]string{" ", "\t"}, "no servers given"},
		{[]string{"a", ""}, "server 2 of 2 is empty"},
		{[]string{"a:1,,b:1"}, "server 2 of 3 is empty"},
		{[]string{"a:1,"}, "server 2 of 2 is empty"},
		{[]string{"a/x", "b"}, `does not follow the last server: give one chroot for all servers, at the end, as in "host1,host2/app"; or use WithNamespace`},
		{[]string{"a/x,b/x"}, "does not follow the last server"},
		{[]string{"a//x"}, `chroot: invalid path "//x": empty segment`},
		{[]string{"a/x/"}, `chroot: invalid path "/x/": trailing slash`},
		{[]string{"a/zookeeper"}, "reserved for the server"},
		{[]string{"a", "/x"}, "server 2 of 2 is empty"},
		{[]string{"zk://a:1"}, `is a URL: give each server as host:port, without zk://`},
		{[]string{"zk://a:1,b/x"}, `is a URL`},
		{[]string{":2181"}, "is not host:port"},
		{[]string{"a b:1"}, "is not host:port"},
		{[]string{"a:"}, `"" is not a port`},
		{[]string{"a:0"}, `"0" is not a port`},
		{[]string{"a:65536"}, `"65536" is not a port`},
		{[]string{"a:x"}, `"x" is not a port`},
		{[]string{"::1"}, "too many colons"},
	} {
		_, err := Connect(t.Context(), test.servers, WithDialer(noDial), WithConnectTimeout(time.Millisecond))
		require.ErrorIs(t, err, ErrInvalidArgument, "%q", test.servers)
		require.ErrorContains(t, err, test.want, "%q", test.servers)
		require.NotErrorIs(t, err, net.ErrClosed, "%q was dialled", test.servers)
	}
	for _, servers := range [][]string{{"a"}, {"a:1"}, {"a", "b:65535"}, {"[::1]:2181"}, {"10.0.0.1"}} {
		parsed, chroot, err := parseServers(servers)
		require.NoError(t, err, "%q", servers)
		require.Equal(t, servers, parsed)
		require.Empty(t, chroot)
	}
	parsed, _, err := parseServers([]string{" a:1", "b\n"})
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "b"}, parsed)
}

// The connect string of other clients, as a whole and split at the commas.
func TestChrootIsNamespace(t *testing.T) {
	for _, test := range []struct {
		servers   []string
		namespace string
		parsed    []string
		want      string
	}{
		{[]string{"h1,h2/app"}, "", []string{"h1", "h2"}, "/app"},
		{[]string{"h1", "h2/app"}, "", []string{"h1", "h2"}, "/app"},
		{[]string{" h1:1", " [::1]:2/app/b "}, "", []string{"h1:1", "[::1]:2"}, "/app/b"},
		{[]string{"h1:1,h2"}, "", []string{"h1:1", "h2"}, ""},
		{[]string{"h1/"}, "", []string{"h1"}, ""},
		{[]string{"h1/app"}, "team", []string{"h1"}, "/app/team"},
		{[]string{"h1/"}, "team", []string{"h1"}, "/team"},
	} {
		cfg, err := configure([]Option{WithNamespace(test.namespace)})
		require.NoError(t, err)
		require.NoError(t, cfg.setServers(test.servers), "%q", test.servers)
		require.Equal(t, test.parsed, cfg.Servers, "%q", test.servers)
		require.Equal(t, test.want, cfg.namespace, "%q", test.servers)
	}
}

// A connect string of another library may have a password in it. A comma in the password spreads it over two servers.
func TestConnectErrorsShowNoPassword(t *testing.T) {
	for _, servers := range [][]string{
		{"ann:secret@zk1:2181"},
		{"zk://ann:secret@zk1:2181/root"},
		{"zk1:2181", "ann:secret@zk2:2181"},
		{"zk1:2181,ann:secret@zk2:2181,zk3"},
		{"ann:secret", "secret@zk1:2181"},
		{"ann:secret@secret@zk1:2181"},
		{"ann secret@zk1"},
	} {
		_, err := Connect(t.Context(), servers, WithDialer(noDial), WithConnectTimeout(time.Millisecond))
		require.ErrorIs(t, err, ErrInvalidArgument, "%q", servers)
		require.ErrorContains(t, err, "give credentials with WithAuth", "%q", servers)
		require.ErrorContains(t, err, "@zk", "%q", servers)
		require.NotContains(t, err.Error(), "secret", "%q", servers)
	}
}

func TestNamespaceForms(t *testing.T) {
	for given, want := range map[string]string{
		"app": "/app", "/app": "/app", "team/service": "/team/service", "": "", "/": "",
	} {
		cfg, err := configure([]Option{WithNamespace(given)})
		require.NoError(t, err, given)
		require.Equal(t, want, cfg.namespace, given)
	}
}

// What is given to an option may be changed afterwards.
func TestOptionsCopy(t *testing.T) {
	acl, credential := zk.WorldACL(zk.PermRead), []byte("user:password")
	settings := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: "zk"}
	opts := []Option{WithACL(acl...), WithAuth("digest", credential), WithTLS(settings)}
	cfg, err := configure(opts)
	require.NoError(t, err)
	acl[0].Perms, credential[0], settings.ServerName = 0, 'X', "other"
	require.Equal(t, zk.WorldACL(zk.PermRead), cfg.ACL)
	require.Equal(t, "user:password", string(cfg.Auth[0].Credential))
	require.Equal(t, "zk", cfg.TLS.ServerName)
}
