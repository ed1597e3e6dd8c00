package zktest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// certificate returns the TLS settings of a server and of its clients, with a certificate that is valid in bubbles,
// too.
func certificate(tb testing.TB) (server, client *tls.Config) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(tb, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: began.Add(-time.Hour), NotAfter: began.AddDate(100, 0, 0),
		DNSNames: []string{"zktest"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(tb, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(tb, err)
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
		&tls.Config{RootCAs: roots, ServerName: "zktest"}
}

func TestTLS(t *testing.T) {
	everywhere(t, func(w world) {
		server, client := certificate(w)
		srv := zktest.NewServer(w, zktest.WithTLS(server))
		c, err := recipes.Connect(w.Context(), srv.Addrs(), recipes.WithDialer(w.dialer(srv)), recipes.WithTLS(client))
		require.NoError(w, err)
		_, err = c.Conn().Create("/a", nil, 0, all)
		require.NoError(w, err)
		require.NoError(w, c.Close())

		conn := tls.Client(w.dial(srv), client)
		r := session(w, conn, time.Minute)
		srv.Disconnect(r.id)
		r.end()
	})
}

// A client with TLS also notices that its servers were emptied.
func TestTLSAfterWipe(t *testing.T) {
	bubble(t, func(w world) {
		server, client := certificate(w)
		srv := zktest.NewServer(w, zktest.WithTLS(server))
		c, err := recipes.Connect(w.Context(), srv.Addrs(), recipes.WithDialer(w.dialer(srv)), recipes.WithTLS(client), recipes.WithSessionTimeout(6*time.Second))
		require.NoError(w, err)
		_, err = c.Conn().Create("/a", nil, 0, all)
		require.NoError(w, err)
		srv.Wipe()
		pass(10 * time.Second)
		require.Equal(w, recipes.Connected, c.State())
		_, err = c.Conn().Create("/a", nil, 0, all)
		require.NoError(w, err)
		require.Len(w, srv.Sessions(), 1)
		require.NoError(w, c.Close())
	})
}

func TestTLSOnOneSideOnly(t *testing.T) {
	everywhere(t, func(w world) {
		server, _ := certificate(w)
		srv := zktest.NewServer(w, zktest.WithTLS(server))
		plain := newRaw(w, w.dial(srv))
		plain.hail(time.Second)
		testkit.Eventually(w, func() bool { return srv.Connections() == 0 }, "the connection's end")
		require.Empty(w, srv.Sessions())
	})
	_, err := zktest.Start(zktest.WithTLS(nil))
	require.Error(t, err)
}
