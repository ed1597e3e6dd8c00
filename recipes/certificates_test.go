package recipes_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         ed25519.PrivateKey
	pool        *x509.CertPool
}

func newAuthority() *authority {
	public, key, _ := ed25519.GenerateKey(rand.Reader) // never fails
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		panic(err)
	}
	certificate, _ := x509.ParseCertificate(der)
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	return &authority{certificate, key, pool}
}

// issue returns a certificate for name that is valid until the given time, and its key.
func (a *authority) issue(name string, serial int64, until time.Time) (der []byte, key ed25519.PrivateKey) {
	public, key, _ := ed25519.GenerateKey(rand.Reader) // never fails
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.certificate, public, a.key)
	if err != nil {
		panic(err)
	}
	return der, key
}

// write writes a certificate of ann, its key and the certificate of the authority into files, as a rotation does.
func (a *authority) write(dir string, serial int64, until time.Time) {
	der, key := a.issue("ann", serial, until)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	for file, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: encoded}, "ca.pem": {Type: "CERTIFICATE", Bytes: a.certificate.Raw}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			panic(err)
		}
	}
}

// forServer returns the settings of a server that requires client certificates of the authority, and whose own
// certificate is valid until the given time.
func (a *authority) forServer(until time.Time) *tls.Config {
	der, key := a.issue("zk", 2, until)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: a.pool, MinVersion: tls.VersionTLS12,
	}
}

func startServer(settings *tls.Config) *zktest.Server {
	server, err := zktest.Start(zktest.WithTLS(settings))
	if err != nil {
		panic(err)
	}
	return server
}

// fromFiles are the settings of a client whose certificate, and that of the authority, are in files that may be replaced at any time.
func fromFiles(dir string) *tls.Config {
	return &tls.Config{
		ServerName: "zk", MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection verifies, because package tls has no function that returns RootCAs
		VerifyConnection: func(state tls.ConnectionState) error { // at each connection
			authorities, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
			if err != nil {
				return err
			}
			options := x509.VerifyOptions{DNSName: state.ServerName, Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
			options.Roots.AppendCertsFromPEM(authorities)
			for _, intermediate := range state.PeerCertificates[1:] {
				options.Intermediates.AddCert(intermediate)
			}
			if _, err := state.PeerCertificates[0].Verify(options); err != nil {
				return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
			}
			return nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // at each connection
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
			return &pair, err
		},
	}
}

// Certificates that are rotated on disk, those of the authority included, are used at the next connection, and the lease stands. The ACL
// names the certificate's subject.
func ExampleWithTLS_rotation() {
	dir, err := os.MkdirTemp("", "certificates")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ca := newAuthority()
	ca.write(dir, 10, time.Now().Add(time.Hour))
	var forServer atomic.Pointer[tls.Config]
	forServer.Store(ca.forServer(time.Now().Add(time.Hour)))
	rotated := forServer.Load().Clone()
	rotated.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return forServer.Load(), nil }
	server := startServer(rotated)
	defer func() { _ = server.Close() }()

	var serial *big.Int
	settings := fromFiles(dir) // with GetClientCertificate and VerifyConnection, which read the files
	read := settings.GetClientCertificate
	settings.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := read(info)
		serial = pair.Leaf.SerialNumber
		return pair, err
	}
	client, err := recipes.Connect(context.Background(), []string{server.Addr()}, recipes.WithTLS(settings),
		recipes.WithACL(zk.ACL{Perms: zk.PermAll, Scheme: "x509", ID: "CN=ann"}))
	if err != nil {
		panic(err)
	}
	defer func() { _ = client.Close() }()
	lock, err := mutex.New(client, "/locks/report")
	if err != nil {
		panic(err)
	}
	lease, err := lock.Acquire(context.Background())
	if err != nil {
		panic(err)
	}
	states, stop := client.Subscribe()
	defer stop()
	fmt.Println(<-states, "with certificate", serial)

	next := newAuthority()
	next.write(dir, 11, time.Now().Add(time.Hour))
	forServer.Store(next.forServer(time.Now().Add(time.Hour)))
	server.Disconnect()
	fmt.Println(<-states)
	fmt.Println(<-states, "with certificate", serial)
	fmt.Println(lease.Context().Err(), lease.Release())
	// Output:
	// connected with certificate 10
	// suspended
	// reconnected with certificate 11
	// <nil> <nil>
}

// An expired certificate has its own error, for either side, and Connect does not wait for its timeout.
func TestExpiredCertificates(t *testing.T) {
	ca := newAuthority()
	past, future := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	for whose, until := range map[string][2]time.Time{"of the server": {past, future}, "of the client": {future, past}} {
		server, dir := startServer(ca.forServer(until[0])), t.TempDir()
		ca.write(dir, 10, until[1])
		beganAt := time.Now()
		_, err := recipes.Connect(t.Context(), []string{server.Addr()}, recipes.WithTLS(fromFiles(dir)), recipes.WithConnectTimeout(time.Minute))
		require.ErrorIs(t, err, recipes.ErrCertificateExpired)
		require.ErrorContains(t, err, "certificate expired: "+whose)
		require.Less(t, time.Since(beganAt), 30*time.Second)
		require.NoError(t, server.Close())
	}
}

// A server of another name is refused, and so is one with a certificate of an unknown authority, also by its IP address.
func TestVerificationByHandGetsTheName(t *testing.T) {
	ca, dir := newAuthority(), t.TempDir()
	ca.write(dir, 10, time.Now().Add(time.Hour))
	server := startServer(ca.forServer(time.Now().Add(time.Hour)))
	defer func() { require.NoError(t, server.Close()) }()
	for _, name := range []string{"", "other"} {
		settings := fromFiles(dir)
		settings.ServerName = name // "" becomes the server's address, which its certificate does not have
		_, err := recipes.Connect(t.Context(), []string{server.Addr()}, recipes.WithTLS(settings), recipes.WithConnectTimeout(time.Minute))
		require.ErrorAs(t, err, new(x509.HostnameError), "name %q", name)
	}
	newAuthority().write(dir, 10, time.Now().Add(time.Hour))
	_, err := recipes.Connect(t.Context(), []string{server.Addr()}, recipes.WithTLS(fromFiles(dir)), recipes.WithConnectTimeout(time.Minute))
	require.ErrorAs(t, err, new(x509.UnknownAuthorityError))
}
