//go:build linux

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
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// writeCertificate makes a self-signed certificate and its key, as files.
func writeCertificate(t *testing.T, dir string) (certificate, key string) {
	t.Helper()
	return writeCertificateFor(t, dir, time.Hour)
}

// writeCertificateFor is writeCertificate for a certificate that is valid for a time.
func writeCertificateFor(t *testing.T, dir string, validFor time.Duration) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "zkr"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validFor), IsCA: true, BasicConstraintsValid: true,
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

// Rotated files, of the authority and of this client, take effect at the next connection, also while zkr waits.
func TestCertificatesAreReadAtEachConnection(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificate, key := writeCertificate(t, dir)
	settings := func() *tls.Config {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		require.NoError(t, err)
		known := x509.NewCertPool()
		known.AddCert(pair.Leaf)
		return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: known, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	}
	var current atomic.Pointer[tls.Config]
	current.Store(settings())
	rotating := current.Load().Clone()
	rotating.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.Load(), nil }
	server := zktest.NewServer(t, zktest.WithTLS(rotating))
	w := &world{T: t, server: server, dir: dir, env: []string{"ZKR_SERVERS=" + server.Addr(), "ZKR_TLS_CA=" + certificate, "ZKR_TLS_CERT=" + certificate, "ZKR_TLS_KEY=" + key}}
	r := w.start("lock", "/l", "--", "sh", "-c", "echo > ready; while [ ! -e go ]; do sleep 0.02; done; exit 3")
	w.content("ready")
	writeCertificate(t, dir) // another authority and another key
	current.Store(settings())
	var reconnects atomic.Int32
	server.Inject(func(r zktest.Request) (none zktest.Fault) {
		if r.Op == zktest.OpConnect {
			reconnects.Add(1)
		}
		return none
	})
	server.Disconnect()
	w.eventually(func() bool { return reconnects.Load() > 0 }, "zkr is connected again")
	require.NoError(t, os.WriteFile(w.file("go"), nil, 0o600))
	require.Equal(t, 3, r.code(), r.stderr.String())
}

// secured is a world whose server asks for client certificates, and the flags for it.
func secured(t *testing.T) (w *world, flags []string) {
	t.Helper()
	t.Parallel()
	dir := t.TempDir()
	certificate, key := writeCertificate(t, dir)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	require.NoError(t, err)
	known := x509.NewCertPool()
	known.AddCert(pair.Leaf)
	server := zktest.NewServer(t, zktest.WithTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: known, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}))
	w = &world{T: t, server: server, dir: dir, env: []string{"ZKR_SERVERS=" + server.Addr(), "ZKR_SESSION_TIMEOUT=30s", "ZKR_NAMESPACE="}}
	return w, []string{"--tls-ca", certificate, "--tls-cert", certificate, "--tls-key", key}
}

// Doctor, and every command that can't connect, names the difference in the TLS settings, with the remedy.
func TestTLSThatDiffers(t *testing.T) {
	for name, test := range map[string]struct {
		flags   func(all []string) []string
		isPlain bool // the server
		want    string
	}{
		"only the server has TLS": {
			flags: func([]string) []string { return nil }, want: "speaks TLS on this port, but zkr does not: give --tls-ca",
		},
		"only zkr has TLS": {
			flags: func(all []string) []string { return all }, isPlain: true, want: "does not speak TLS on this port, but zkr does: give its secureClientPort",
		},
		"a certificate is missing": {
			flags: func(all []string) []string { return all[:2] },
			want:  "the server asks for a client certificate, but none was given: give --tls-cert and --tls-key",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, all := secured(t)
			address := w.server.Addr()
			if test.isPlain {
				address = zktest.NewServer(t).Addr()
				w.env[0] = "ZKR_SERVERS=" + address
			}
			flags := test.flags(all)
			began := time.Now()
			got := w.run(append(flags, "doctor")...)
			require.Less(t, time.Since(began), 15*time.Second)
			require.Equal(t, 2, got.code)
			require.Regexp(t, `(?m)^bad    `+address+`: .*`+test.want, got.stdout)
			require.NotContains(t, got.stdout, "hung")
			require.NotContains(t, got.stdout, "can't be reached")
			got = w.run(append(flags, "lock", "-w", "2s", "/l", "--", "true")...)
			require.Equal(t, 69, got.code)
			require.Regexp(t, `(?m)^  `+address+`: .*`+test.want, got.stderr)
		})
	}
}

// Both sides need certificates of the CA. Otherwise there is no connection.
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
