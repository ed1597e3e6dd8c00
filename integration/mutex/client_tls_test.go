package mutex_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// certificate returns a self-signed certificate for a name, and a pool that trusts it.
func certificate(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// terminated puts TLS in front of the shared server, and returns the port.
func terminated(t *testing.T, settings *tls.Config) (port string) {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", settings)
	require.NoError(t, err)
	var work sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		work.Wait()
	})
	upstream := ensemble.Shared(t).Server(0)
	work.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", upstream)
			if err != nil {
				_ = client.Close()
				continue
			}
			pipe := func(dst, src net.Conn) {
				_, _ = io.Copy(dst, src)
				_ = dst.Close()
				_ = src.Close()
			}
			work.Go(func() { pipe(server, client) })
			work.Go(func() { pipe(client, server) })
		}
	})
	_, port, err = net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}

// The certificate must have the name given to Connect, not the resolved address.
func TestTLS(t *testing.T) {
	ours, trusted := certificate(t, "localhost")
	port := terminated(t, &tls.Config{Certificates: []tls.Certificate{ours}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted})
	server := net.JoinHostPort("localhost", port)
	client := testclient.Dial(t, []string{server}, recipes.WithTLS(&tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{ours}}))
	m := newMutex(t, client, testkit.Path(t))
	require.NoError(t, acquire(t, m).Release())

	refused := func(server string, settings *tls.Config) error {
		_, err := recipes.Connect(testkit.Context(t), []string{server}, recipes.WithTLS(settings), recipes.WithConnectTimeout(2*time.Second))
		return err
	}
	_, stranger := certificate(t, "localhost")
	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, refused(server, &tls.Config{RootCAs: stranger, Certificates: []tls.Certificate{ours}}), &unknown)
	var misnamed x509.HostnameError
	require.ErrorAs(t, refused(net.JoinHostPort("127.0.0.1", port), &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{ours}}), &misnamed)
	require.ErrorContains(t, refused(server, &tls.Config{RootCAs: trusted}), "certificate required")
}
