package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
)

// tlsSettings returns the settings of TLS, nil if no flag asks for it. The files are read now, because a mistake is one of usage, and again
// at each connection, because a rotation replaces them while zkr runs.
func (g *globals) tlsSettings() (*tls.Config, error) {
	if g.tlsCA == "" && g.tlsCert == "" && g.tlsKey == "" {
		return nil, nil //nolint:nilnil // documented
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if g.tlsCA != "" {
		if _, err := readAuthorities(g.tlsCA); err != nil {
			return nil, exit.Errorf(exit.Usage, "%w", err)
		}
		// Package tls has no function that returns RootCAs for a connection.
		settings.InsecureSkipVerify = true //nolint:gosec // verifyServer verifies
		settings.VerifyConnection = g.verifyServer
	}
	if g.tlsCert == "" && g.tlsKey == "" {
		return settings, nil
	}
	if g.tlsCert == "" || g.tlsKey == "" {
		return nil, exit.Errorf(exit.Usage, "--tls-cert and --tls-key need each other")
	}
	if _, err := g.readPair(); err != nil {
		return nil, exit.Errorf(exit.Usage, "%w", err)
	}
	settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return g.readPair() }
	return settings, nil
}

// verifyServer verifies the certificate of a server as package tls does, with the authorities that the file has now.
func (g *globals) verifyServer(state tls.ConnectionState) error {
	authorities, err := readAuthorities(g.tlsCA)
	if err != nil {
		return err
	}
	options := x509.VerifyOptions{Roots: authorities, DNSName: state.ServerName, Intermediates: x509.NewCertPool()}
	for _, intermediate := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(intermediate)
	}
	if _, err := state.PeerCertificates[0].Verify(options); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
	}
	return nil
}

func readAuthorities(path string) (*x509.CertPool, error) {
	content, err := readText(path)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("--tls-ca: no certificate in %s", path)
	}
	return pool, nil
}

// readPair reads this client's certificate and key.
func (g *globals) readPair() (*tls.Certificate, error) {
	certificate, err := readText(g.tlsCert)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	key, err := readSecret(g.tlsKey)
	if err != nil {
		return nil, fmt.Errorf("--tls-key: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	return &pair, nil
}
