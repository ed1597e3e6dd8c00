package session_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"maps"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// site is an ensemble of three servers whose clients find it by name: zk1, zk2 and zk3. It has a name server, three
// addresses with one server each, and one address with a router that distinguishes the servers by the name in TLS.
type site struct {
	*fixture.Ensemble
	t *testing.T

	mu       sync.Mutex // protects what is below
	records  map[string][]string
	silent   map[string]bool // names for which the name server does not answer
	stubborn chan struct{}   // until it is closed, such lookups ignore their context; nil: they obey it
	running  map[string]int  // lookups, by name
	peak     int             // the most lookups of one name at a time
	lookups  int
	servers  map[string]string          // by address
	routed   map[string]string          // servers behind the router, by name
	certs    map[string]tls.Certificate // of the names behind the router
	frozen   map[string]bool            // names for which the router does not answer
	dialled  []string                   // the dialled addresses, or the names requested from the router
}

// The names of a site, and the address of its router.
var (
	names        = []string{"zk1", "zk2", "zk3"}
	siteServers  = []string{"zk1:2181", "zk2:2181", "zk3:2181"}
	routerServer = "10.0.0.9"
)

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{
		Ensemble: fixture.NewEnsemble(t, zktest.WithServers(3)), t: t,
		records: map[string][]string{}, silent: map[string]bool{}, running: map[string]int{},
		servers: map[string]string{}, routed: map[string]string{}, certs: map[string]tls.Certificate{}, frozen: map[string]bool{},
	}
	s.move("10.0.0.1", "10.0.0.2", "10.0.0.3")
	return s
}

// move gives the servers new addresses. The old ones do not answer.
func (s *site) move(addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.servers)
	for i, name := range names {
		s.records[name] = []string{addresses[i]}
		s.servers[net.JoinHostPort(addresses[i], "2181")] = s.Addrs()[i]
	}
}

// silence makes the name server silent for some names, for all if none is given.
func (s *site) silence(of ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(of) == 0 {
		of = names
	}
	for _, name := range of {
		s.silent[name] = true
	}
}

func (s *site) setRecord(name string, addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[name] = addresses
}

// dropRecords makes the name server know no name.
func (s *site) dropRecords() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.records)
}

// config is that of a client, which resolves names and dials addresses itself.
func (s *site) config(timeout time.Duration, servers ...string) session.Config {
	if len(servers) == 0 {
		servers = siteServers
	}
	cfg := s.Config(timeout, servers...)
	cfg.Dialer, cfg.Network = nil, dial.Network{LookupHost: s.lookUp, DialContext: s.dial}
	return cfg
}

func (s *site) lookUp(ctx context.Context, name string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookups++
	s.running[name]++
	s.peak = max(s.peak, s.running[name])
	defer func() { s.running[name]-- }()
	if s.silent[name] {
		stubborn := s.stubborn
		s.mu.Unlock()
		if stubborn != nil {
			<-stubborn
		} else {
			<-ctx.Done()
		}
		s.mu.Lock()
		return nil, &net.DNSError{Err: "i/o timeout", Name: name, IsTimeout: true}
	}
	addresses, isKnown := s.records[name]
	if !isKnown {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return addresses, nil
}

// dial is net.Dialer's DialContext on the site's network.
func (s *site) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) == nil {
		addresses, err := s.lookUp(ctx, host)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		address = net.JoinHostPort(addresses[0], port)
		host = addresses[0]
	}
	if host == routerServer {
		near, far := net.Pipe()
		go s.route(far) // ends with the connection
		return near, nil
	}
	s.mu.Lock()
	server, isKnown := s.servers[address]
	s.dialled = append(s.dialled, address)
	s.mu.Unlock()
	if !isKnown { // packets to it are lost
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
	}
	deadline, _ := ctx.Deadline()
	return s.Dial(network, server, time.Until(deadline))
}

// putBehindRouter gives all names the address of the router, and returns the settings of clients.
func (s *site) putBehindRouter() *tls.Config {
	roots := x509.NewCertPool()
	for i, name := range names {
		certificate := selfSigned(s.t, name, 24*time.Hour)
		roots.AddCert(certificate.Leaf)
		s.mu.Lock()
		s.records[name] = []string{routerServer}
		s.routed[name], s.certs[name] = s.Addrs()[i], certificate
		s.mu.Unlock()
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// freezeRoute makes the router silent to clients that ask for a name, TLS included.
func (s *site) freezeRoute(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen[name] = true
}

// route carries one connection to the server named by the client in TLS.
func (s *site) route(far net.Conn) {
	server := ""
	outer := tls.Server(far, &tls.Config{
		SessionTicketsDisabled: true, // they would wait in the pipe for a client that writes first
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.dialled = append(s.dialled, hello.ServerName)
			if s.frozen[hello.ServerName] {
				s.mu.Unlock()
				_, _ = far.Read(make([]byte, 1)) // until the client gives up
				s.mu.Lock()
			}
			server = s.routed[hello.ServerName]
			certificate := s.certs[hello.ServerName]
			return &certificate, nil
		},
	})
	defer func() { _ = far.Close() }()
	if outer.Handshake() != nil {
		return
	}
	inner, err := s.Dial("tcp", server, 0)
	if err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(inner, outer)
		_ = inner.Close()
	})
	both.Go(func() {
		_, _ = io.Copy(outer, inner)
		_ = far.Close()
	})
	both.Wait()
}

// latest returns what was dialled last.
func (s *site) latest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dialled[len(s.dialled)-1]
}

// dialledSince returns what was dialled, but for the first n dials.
func (s *site) dialledSince(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.dialled[n:]...)
}

// lookupsRunning returns the running lookups, by name, and the greatest number of concurrent lookups of one name.
func (s *site) lookupsRunning() (running map[string]int, peak int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running = maps.Clone(s.running)
	maps.DeleteFunc(running, func(_ string, n int) bool { return n == 0 })
	return running, s.peak
}

// selfSigned returns a certificate for a name, which is over after valid: before now, if that is negative.
func selfSigned(t *testing.T, name string, valid time.Duration) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(valid),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
