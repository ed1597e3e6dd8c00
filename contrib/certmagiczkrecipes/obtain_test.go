package certmagiczkrecipes_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/contrib/certmagiczkrecipes"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// issuer is a certificate authority in the process.
type issuer struct {
	before func() error // called first, if not nil

	mu     sync.Mutex
	issued int // certificates. Guarded by mu
}

func (*issuer) IssuerKey() string { return "test" }

func (i *issuer) Issue(_ context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	if i.before != nil {
		if err := i.before(); err != nil {
			return nil, err
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.issued++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(i.issued)), Subject: pkix.Name{CommonName: "test"}, DNSNames: request.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// newConfig returns the configuration of a host.
func newConfig(storage certmagic.Storage, by certmagic.Issuer) (config *certmagic.Config, stop func()) {
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	config = certmagic.New(cache, certmagic.Config{Storage: storage, Issuers: []certmagic.Issuer{by}, Logger: zap.NewNop()})
	return config, cache.Stop
}

func TestHostsObtainCertificateOnce(t *testing.T) {
	server, folder, authority := zktest.NewServer(t), t.TempDir(), &issuer{}
	results := make(chan error)
	const hosts = 5
	for range hosts {
		storage, err := certmagiczkrecipes.New(zkclient.Connect(t, server), path, &certmagic.FileStorage{Path: folder})
		require.NoError(t, err)
		config, stop := newConfig(storage, authority)
		t.Cleanup(stop)
		go func() { results <- config.ObtainCertSync(t.Context(), "example.com") }() // the loop below reads each result
	}
	for range hosts {
		require.NoError(t, <-results)
	}
	require.Equal(t, 1, authority.issued)
	server.RequireIdle(t)
}

// A host loses its session while its first attempt fails. Its second attempt begins while another host obtains the certificate.
func TestAttemptAfterLossWaitsForOtherHost(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server, folder := zktest.NewServer(t), t.TempDir()
		obtain := func(client *recipes.Client, by certmagic.Issuer) <-chan error {
			storage, err := certmagiczkrecipes.New(client, path, &certmagic.FileStorage{Path: folder})
			require.NoError(t, err)
			config, stop := newConfig(storage, by)
			t.Cleanup(stop)
			return start(func() error { return config.ObtainCertAsync(t.Context(), "example.com") })
		}
		client := zkclient.Connect(t, server)
		failing := &issuer{before: func() error {
			server.Expire(client.Conn().SessionID())
			return errors.New("the authority is busy")
		}}
		slow := &issuer{before: func() error {
			time.Sleep(10 * time.Minute) //nolint:forbidigo // virtual time
			return nil
		}}
		first := obtain(client, failing)
		require.Empty(t, first, "waits for the second attempt")
		failing.before = nil // no attempt runs
		require.NoError(t, <-obtain(zkclient.Connect(t, server), slow))
		require.NoError(t, <-first)
		require.Equal(t, 1, slow.issued)
		require.Zero(t, failing.issued, "the second attempt found the certificate")
	})
}
