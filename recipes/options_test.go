package recipes

import (
	"crypto/tls"
	"log/slog"
	"net"
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
	require.Equal(t, slog.DiscardHandler, cfg.Logger.Handler())
	require.False(t, cfg.SuspendEnds, "SessionErrorPolicy")
	require.Empty(t, cfg.namespace)
	require.Zero(t, cfg.SessionTimeout, "30 s with Connect, unknown with NewClient")
}

func TestOptionsRefuseBadInput(t *testing.T) {
	for want, opt := range map[string]Option{
		"nil option":                  nil,
		"session timeout: 0s":         WithSessionTimeout(0),
		"session timeout: -1s":        WithSessionTimeout(-time.Second),
		"session timeout: 1µs":        WithSessionTimeout(time.Microsecond),
		"connect timeout: 0s":         WithConnectTimeout(0),
		"operation timeout: -1ns":     WithOperationTimeout(-1),
		"retry policy: negative":      WithRetryPolicy(RetryPolicy{MaxAttempts: -1}),
		"negative field":              WithRetryPolicy(RetryPolicy{MaxElapsed: -1}),
		"policy: negative field":      WithRetryPolicy(RetryPolicy{InitialInterval: -1}),
		"y: negative field":           WithRetryPolicy(RetryPolicy{MaxInterval: -1}),
		"acl: empty":                  WithACL(),
		"auth: empty scheme":          WithAuth("", []byte("x")),
		"tls: nil":                    WithTLS(nil),
		"dialer: nil":                 WithDialer(nil),
		"host provider: nil":          WithHostProvider(nil),
		"logger: nil":                 WithLogger(nil),
		"error policy: unknown value": WithErrorPolicy(7),
		`invalid path "//a"`:          WithNamespace("//a"),
		`invalid path "/a/"`:          WithNamespace("a/"),
		`"/zookeeper"`:                WithNamespace("zookeeper"),
		`"/.."`:                       WithNamespace(".."),
	} {
		_, err := Connect(t.Context(), []string{"localhost"}, WithDialer(noDial), opt)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "recipes: connect localhost: ")
		require.ErrorIs(t, err, ErrInvalidArgument)
		_, err = NewClient(new(zk.Conn), make(chan zk.Event), opt)
		require.ErrorContains(t, err, want)
	}
}

func TestConnectRefusesBadServers(t *testing.T) {
	for _, servers := range [][]string{
		nil, {}, {""}, {":2181"}, {"a:"}, {"a:0"}, {"a:65536"}, {"a:x"}, {"a b:1"}, {"a,b:1"}, {"a:1/x"}, {"::1"}, {"a/x"}, {"a", ""},
	} {
		_, err := Connect(t.Context(), servers, WithDialer(noDial), WithConnectTimeout(time.Millisecond))
		require.ErrorIs(t, err, ErrInvalidArgument, "%q", servers)
		require.NotErrorIs(t, err, net.ErrClosed, "%q was dialled", servers)
	}
	for _, servers := range [][]string{{"a"}, {"a:1"}, {"a", "b:65535"}, {"[::1]:2181"}, {"10.0.0.1"}} {
		require.NoError(t, checkServers(servers), "%q", servers)
	}
}

func TestNewClientRefusesWhatItCantHonour(t *testing.T) {
	for name, opt := range map[string]Option{
		"WithConnectTimeout": WithConnectTimeout(time.Second),
		"WithAuth":           WithAuth("digest", []byte("a:b")),
		"WithTLS":            WithTLS(&tls.Config{MinVersion: tls.VersionTLS13}),
		"WithDialer":         WithDialer(noDial),
		"WithHostProvider":   WithHostProvider(zk.NewDNSHostProvider()),
	} {
		_, err := NewClient(new(zk.Conn), make(chan zk.Event), opt)
		require.ErrorContains(t, err, name+": only for Connect")
	}
	_, err := NewClient(nil, make(chan zk.Event))
	require.ErrorContains(t, err, "must not be nil")
	require.ErrorIs(t, err, ErrInvalidArgument)
	_, err = NewClient(new(zk.Conn), nil)
	require.ErrorContains(t, err, "must not be nil")
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
