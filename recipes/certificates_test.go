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

// issue returns a certificate for name that ends at until, and its key.
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

// write writes a certificate and its key into two files, as a rotation does.
func (a *authority) write(dir, name string, serial int64, until time.Time) {
	der, key := a.issue(name, serial, until)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	for file, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			panic(err)
		}
	}
}

// server starts a server that demands certificates of the authority. It shows one that ends at until.
func (a *authority) server(until time.Time) *zktest.Server {
	der, key := a.issue("zk", 2, until)
	server, err := zktest.Start(zktest.WithTLS(&tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: a.pool, MinVersion: tls.VersionTLS12,
	}))
	if err != nil {
		panic(err)
	}
	return server
}

// fromFiles are the settings of a client whose certificate is in files that may be replaced at any time.
func (a *authority) fromFiles(dir string) *tls.Config {
	return &tls.Config{
		RootCAs: a.pool, ServerName: "zk", MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // at each connection
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
			return &pair, err
		},
	}
}

// A certificate that is rotated on disk is used at the next connection, and the lease stands. The ACL names the certificate's subject.
func ExampleWithTLS_rotation() {
	dir, err := os.MkdirTemp("", "certificates")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ca := newAuthority()
	ca.write(dir, "ann", 10, time.Now().Add(time.Hour))
	server := ca.server(time.Now().Add(time.Hour))
	defer func() { _ = server.Close() }()

	var serial *big.Int
	settings := ca.fromFiles(dir) // with GetClientCertificate, which reads the files
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

	ca.write(dir, "ann", 11, time.Now().Add(time.Hour))
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

// An expired certificate has a name, whoever shows it, and Connect does not wait for its timeout.
func TestExpiredCertificates(t *testing.T) {
	ca := newAuthority()
	past, future := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	for whose, until := range map[string][2]time.Time{"of the server": {past, future}, "of the client": {future, past}} {
		server, dir := ca.server(until[0]), t.TempDir()
		ca.write(dir, "ann", 10, until[1])
		beganAt := time.Now()
		_, err := recipes.Connect(t.Context(), []string{server.Addr()}, recipes.WithTLS(ca.fromFiles(dir)), recipes.WithConnectTimeout(time.Minute))
		require.ErrorIs(t, err, recipes.ErrCertificateExpired)
		require.ErrorContains(t, err, "certificate expired: "+whose)
		require.Less(t, time.Since(beganAt), 30*time.Second)
		require.NoError(t, server.Close())
	}
}
