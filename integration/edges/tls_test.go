package edges_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// secured starts a server with a TLS port that asks clients for a certificate.
func secured(t *testing.T, trusted *authority, own tls.Certificate) *ensemble.Ensemble {
	t.Helper()
	return ensemble.New(t, ensemble.Config{
		Properties: map[string]string{
			"secureClientPort":        "2281",
			"serverCnxnFactory":       "org.apache.zookeeper.server.NettyServerCnxnFactory",
			"ssl.protocol":            "TLSv1.3",
			"ssl.enabledProtocols":    "TLSv1.3,TLSv1.2",
			"ssl.ciphersuites":        "TLS_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
			"ssl.keyStore.location":   "/tls/server.pem",
			"ssl.keyStore.type":       "PEM",
			"ssl.trustStore.location": "/tls/trusted.pem",
			"ssl.trustStore.type":     "PEM",
		},
		Files: map[string][]byte{"/tls/server.pem": store(t, own), "/tls/trusted.pem": trusted.chain()},
	})
}

// versions are those that servers offer. In the later one, a client learns of a refusal only when it reads.
var versions = map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13}

// What is locked and awaited over TLS with client certificates survives a cut, and an
// ACL can name the certificate.
func TestTLSWithClientCertificates(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "zkrecipes tests")
	server := secured(t, ca, ca.issue("localhost", time.Hour)).SecureServers()[0]
	for name, version := range versions {
		t.Run(name, func(t *testing.T) { lockOverTLS(t, ca, server, version) })
	}
	refusals(t, ca, server)
}

func lockOverTLS(t *testing.T, ca *authority, server string, version uint16) {
	t.Helper()
	as := func(name string, opts ...recipes.Option) *recipes.Client {
		settings := &tls.Config{RootCAs: ca.pool(), Certificates: []tls.Certificate{ca.issue(name, time.Hour)}, MinVersion: version, MaxVersion: version}
		return connect(t, server, append(opts, recipes.WithTLS(settings))...)
	}
	var cable lines
	path := testkit.Path(t)
	shop := recipes.WithACL(zk.ACL{Perms: zk.PermAll, Scheme: "x509", ID: "CN=shop"})
	first, second := as("shop", shop, credential(owner), recipes.WithDialer(cable.dial)), as("shop", shop)
	states, stop := first.Subscribe()
	defer stop()
	lease := acquire(t, newMutex(t, first, path))
	next := acquiring(testkit.Context(t), newMutex(t, second, path))
	require.Equal(t, recipes.Connected, <-states)
	cable.cut()
	require.Equal(t, recipes.Suspended, <-states)
	require.Equal(t, recipes.Reconnected, <-states)
	require.NoError(t, context.Cause(lease.Context()), "the lease outlives the cut")
	for _, secret := range []string{owner, path} {
		require.False(t, bytes.Contains(cable.sent(), []byte(secret)), "the network sees %q", secret)
	}

	_, err := newMutex(t, as("stranger"), path).TryAcquire(testkit.Context(t))
	require.ErrorIs(t, err, zk.ErrNoAuth, "another certificate")
	require.NoError(t, lease.Release())
	granted := <-next
	require.NoError(t, granted.err)
	require.Greater(t, granted.lease.FencingToken(), lease.FencingToken())
	require.NoError(t, granted.lease.Release())
}

// refusals: Connect says at once what is wrong with whose certificate.
func refusals(t *testing.T, ca *authority, server string) {
	t.Helper()
	good, other := ca.issue("shop", time.Hour), newAuthority(t, "somebody else")
	foreign := other.issue("shop", time.Hour)
	for _, test := range []struct {
		name   string
		trusts *authority
		shows  []tls.Certificate
		says   string
	}{
		{"a server of another authority", other, []tls.Certificate{good}, "certificate signed by unknown authority"},
		{"no client certificate", ca, nil, "the server asks for a client certificate, but none was given"},
		{"a client certificate of another authority", ca, []tls.Certificate{foreign}, "the server asks for a client certificate, but none of those given matches"},
		{"an expired client certificate", ca, []tls.Certificate{ca.issue("shop", -time.Hour)}, "the client certificate CN=shop is only valid until"},
	} {
		for name, version := range versions {
			t.Run(test.name+", "+name, func(t *testing.T) {
				settings := &tls.Config{RootCAs: test.trusts.pool(), Certificates: test.shows, MinVersion: version, MaxVersion: version}
				began := time.Now()
				_, err := recipes.Connect(testkit.Context(t), []string{server}, recipes.WithTLS(settings))
				took := time.Since(began)
				t.Log(took, err)
				require.ErrorContains(t, err, "TLS with "+server)
				require.ErrorContains(t, err, test.says)
				require.Less(t, took, atOnce, "the connect timeout is 15 s")
			})
		}
	}
	t.Run("one server of two is wrong", func(t *testing.T) {
		wrong := speakTLS(t, other.issue("localhost", time.Hour))
		for range 2 { // in random order
			client, err := recipes.Connect(testkit.Context(t), []string{wrong, server}, recipes.WithTLS(&tls.Config{RootCAs: ca.pool(), Certificates: []tls.Certificate{good}, MinVersion: tls.VersionTLS12}))
			require.NoError(t, err)
			require.NoError(t, client.Close())
		}
	})
	t.Run("the server's certificate has expired", func(t *testing.T) {
		began := time.Now()
		_, err := recipes.Connect(testkit.Context(t), []string{speakTLS(t, ca.issue("localhost", -time.Hour))}, recipes.WithTLS(&tls.Config{RootCAs: ca.pool(), MinVersion: tls.VersionTLS12}))
		require.Less(t, time.Since(began), atOnce, "the connect timeout is 15 s")
		var invalid x509.CertificateInvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, x509.Expired, invalid.Reason)
		t.Log(err)
	})
	t.Run("TLS on one side only", func(t *testing.T) { // the client asks in the other way, too
		plain := shared(t)
		began := time.Now()
		_, err := recipes.Connect(testkit.Context(t), []string{server})
		require.ErrorContains(t, err, "the server speaks TLS on this port, and this client does not")
		require.Less(t, time.Since(began), atOnce, "the connect timeout is 15 s")
		t.Log(time.Since(began), err)
		began = time.Now()
		_, err = recipes.Connect(testkit.Context(t), []string{plain}, recipes.WithTLS(&tls.Config{RootCAs: ca.pool(), MinVersion: tls.VersionTLS12}))
		require.ErrorContains(t, err, "TLS with "+plain)
		require.ErrorContains(t, err, "the server does not speak TLS on this port, and this client does")
		require.Less(t, time.Since(began), atOnce, "the connect timeout is 15 s")
		t.Log(err)
	})
}

// speakTLS is a server that only shows its certificate, which is enough for clients that refuse it.
func speakTLS(t *testing.T, own tls.Certificate) (address string) {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	var work sync.WaitGroup
	work.Go(func() { // ends with the listener; joined below
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		work.Wait()
	})
	return listener.Addr().String()
}
