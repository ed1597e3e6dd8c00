package main_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// writeCertificate makes a certificate that signs itself, and its key, as files.
func writeCertificate(t *testing.T, dir string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "zkr"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	certificate, key = filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600))
	return certificate, key
}

// The server is known by the CA, and zkr by its certificate. Without either there is no connection.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificate, key := writeCertificate(t, dir)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	require.NoError(t, err)
	known := x509.NewCertPool()
	content, err := os.ReadFile(certificate)
	require.NoError(t, err)
	require.True(t, known.AppendCertsFromPEM(content))
	server := zktest.NewServer(t, zktest.WithTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: known, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}))
	w := &world{T: t, server: server, dir: dir, env: []string{"ZKR_SERVERS=" + server.Addr()}}
	full := []string{"--tls-ca", certificate, "--tls-cert", certificate, "--tls-key", key}
	require.Equal(t, result{3, "", ""}, w.run(append(full, "lock", "/l", "--", "sh", "-c", "exit 3")...))
	require.Equal(t, 1, w.run(append(full, "doctor")...).code)
	marked := make([]string, 0, len(full)) // the same files with byte order marks
	for i, arg := range full {
		if i%2 == 1 {
			content, err := os.ReadFile(arg)
			require.NoError(t, err)
			arg += ".marked"
			require.NoError(t, os.WriteFile(arg, append([]byte("\uFEFF"), content...), 0o600))
		}
		marked = append(marked, arg)
	}
	require.Equal(t, 0, w.run(append(marked, "lock", "/l", "--", "true")...).code)
	for _, args := range [][]string{nil, full[:2], full[2:]} {
		require.Equal(t, 69, w.run(append(args, "lock", "-w", "2s", "/l", "--", "true")...).code, args)
	}
	require.Equal(t, 64, w.run("--tls-ca", key, "ls", "/").code, "no certificate in it")
	require.Equal(t, 64, w.run("--tls-cert", certificate, "--tls-key", certificate, "ls", "/").code)
}
