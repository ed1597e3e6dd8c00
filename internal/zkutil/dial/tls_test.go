package dial

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// tlsServer simulates servers with TLS at the other end of the connections that it dials.
type tlsServer struct {
	t        *testing.T
	settings *tls.Config
	serve    func(net.Conn) // in place of a handshake, if not nil
	open     atomic.Int32   // sockets of the client
	work     sync.WaitGroup

	mu     sync.Mutex // protects what is below
	asked  []string   // the names that clients asked for
	shown  []string   // the names in the clients' certificates
	dialed []string
}

func newTLSServer(t *testing.T, certificate tls.Certificate) *tlsServer {
	t.Helper()
	s := &tlsServer{t: t, settings: &tls.Config{Certificates: []tls.Certificate{certificate}, SessionTicketsDisabled: true}}
	s.settings.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, hello.ServerName)
		return nil, nil //nolint:nilnil // keeps the existing settings
	}
	return s
}

// countedConn counts the sockets that are open.
type countedConn struct {
	net.Conn
	open *atomic.Int32
	once *sync.Once
}

// Write fails as a socket's does whose other end was closed.
func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, io.ErrClosedPipe) {
		err = syscall.EPIPE
	}
	return n, err
}

func (c countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

func (s *tlsServer) dial(address string) net.Conn {
	near, far := net.Pipe()
	s.open.Add(1)
	s.mu.Lock()
	s.dialed = append(s.dialed, address)
	s.mu.Unlock()
	s.work.Go(func() { // ends with the connection
		defer func() { _ = far.Close() }()
		if s.serve != nil {
			s.serve(far)
			return
		}
		conn := tls.Server(far, s.settings)
		if conn.Handshake() == nil {
			if shown := conn.ConnectionState().PeerCertificates; len(shown) > 0 {
				s.mu.Lock()
				s.shown = append(s.shown, shown[0].DNSNames...)
				s.mu.Unlock()
			}
			_, _ = conn.Read(make([]byte, 1))
		}
	})
	return countedConn{near, &s.open, new(sync.Once)}
}

// dialer returns a Dialer whose sockets lead to s, with the user's dialer or without.
func (s *tlsServer) dialer(o *testOwner, settings *tls.Config, hasDialer bool) *Dialer {
	cfg := Config{TLS: settings, Network: Network{
		LookupHost:  func(context.Context, string) ([]string, error) { return []string{"10.0.0.9"}, nil },
		DialContext: func(_ context.Context, _, address string) (net.Conn, error) { return s.dial(address), nil },
	}}
	if hasDialer {
		cfg.Dialer = func(_, address string, _ time.Duration) (net.Conn, error) { return s.dial(address), nil }
	}
	s.t.Cleanup(s.work.Wait)
	return New(s.t.Context(), cfg, o)
}

// connect dials the next server as zk.Conn does. The connection is closed at the end of the test, at the latest.
func (s *tlsServer) connect(d *Dialer) (net.Conn, error) {
	server, _ := d.hosts.Next()
	conn, _, err := d.Dial("tcp", server)
	if err == nil {
		s.t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// issue returns a self-signed certificate, and a pool that trusts it.
func issue(t *testing.T, names ...string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	return issueFrom(t, time.Now().Add(-48*time.Hour), names...)
}

// issueFrom is issue with the time from which on the certificate is valid, for 49 hours.
func issueFrom(t *testing.T, notBefore time.Time, names ...string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotBefore: notBefore, NotAfter: notBefore.Add(49 * time.Hour),
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// For every failure in the TLS handshake, in any party's code, the socket is closed and the dial ends in time.
func TestFailedTLSHandshakeClosesItsSocket(t *testing.T) {
	refusal := errors.New("not to my liking")
	released := make(chan struct{})
	for name, test := range map[string]struct {
		says      string
		configure func(client *tls.Config, server *tlsServer)
		hasPanic  bool
	}{
		"another name": {says: "certificate is valid for zk1, not zk2", configure: func(client *tls.Config, _ *tlsServer) {
			client.ServerName = "zk2"
		}},
		"an unknown authority": {says: "unknown authority", configure: func(client *tls.Config, _ *tlsServer) {
			client.RootCAs = x509.NewCertPool()
		}},
		"an expired certificate": {says: "certificate has expired", configure: func(client *tls.Config, _ *tlsServer) {
			client.Time = func() time.Time { return time.Now().AddDate(1, 0, 0) }
		}},
		"refused by VerifyConnection": {says: refusal.Error(), configure: func(client *tls.Config, _ *tlsServer) {
			client.VerifyConnection = func(tls.ConnectionState) error { return refusal }
		}},
		"refused by VerifyPeerCertificate": {says: refusal.Error(), configure: func(client *tls.Config, _ *tlsServer) {
			client.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return refusal }
		}},
		"no certificate from GetClientCertificate": {says: refusal.Error(), configure: func(client *tls.Config, server *tlsServer) {
			server.settings.ClientAuth = tls.RequireAnyClientCert
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, refusal }
		}},
		"a panic in VerifyConnection": {says: "panic: oh", hasPanic: true, configure: func(client *tls.Config, _ *tlsServer) {
			client.VerifyConnection = func(tls.ConnectionState) error { panic("oh") }
		}},
		"a panic in VerifyPeerCertificate": {says: "panic: oh", hasPanic: true, configure: func(client *tls.Config, _ *tlsServer) {
			client.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { panic("oh") }
		}},
		"a panic in GetClientCertificate": {says: "panic: oh", hasPanic: true, configure: func(client *tls.Config, server *tlsServer) {
			server.settings.ClientAuth = tls.RequireAnyClientCert
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { panic("oh") }
		}},
		"VerifyConnection hangs": {says: "did not return within", configure: func(client *tls.Config, _ *tlsServer) {
			client.VerifyConnection = func(tls.ConnectionState) error {
				<-released
				return nil
			}
		}},
		"VerifyPeerCertificate hangs": {says: "did not return within", configure: func(client *tls.Config, _ *tlsServer) {
			client.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error {
				<-released
				return nil
			}
		}},
		"GetClientCertificate hangs": {says: "did not return within", configure: func(client *tls.Config, server *tlsServer) {
			server.settings.ClientAuth = tls.RequireAnyClientCert
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				<-released
				return new(tls.Certificate), nil
			}
		}},
		"the server is too old": {says: "protocol version", configure: func(client *tls.Config, server *tlsServer) {
			client.MinVersion, server.settings.MaxVersion = tls.VersionTLS13, tls.VersionTLS12
		}},
		"the server asks for a certificate": {says: "none was given", configure: func(client *tls.Config, server *tlsServer) {
			client.MaxVersion, server.settings.ClientAuth = tls.VersionTLS12, tls.RequireAnyClientCert
		}},
		"the server is silent": {says: "deadline exceeded", configure: func(_ *tls.Config, server *tlsServer) {
			server.serve = func(conn net.Conn) {
				_, _ = io.Copy(io.Discard, conn)
			}
		}},
		"the server hangs up": {says: "TLS on one side only", configure: func(_ *tls.Config, server *tlsServer) {
			server.serve = func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1<<14)) }
		}},
		"the server has no TLS": {says: "does not look like a TLS handshake", configure: func(_ *tls.Config, server *tlsServer) {
			server.serve = func(conn net.Conn) {
				_, _ = conn.Read(make([]byte, 1<<14))
				_, _ = conn.Write([]byte{0, 0, 0, 41, 0, 0, 0, 0}) // the answer to a handshake begins like this
			}
		}},
	} {
		for dialer, hasDialer := range map[string]bool{"own dialer": false, "the user's dialer": true} {
			t.Run(name+", "+dialer, func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T) {
					const patience = 2 * time.Second
					released = make(chan struct{})
					certificate, pool := issue(t, "zk1")
					server := newTLSServer(t, certificate)
					settings := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
					test.configure(settings, server)
					o := &testOwner{patience: patience}
					d := server.dialer(o, settings, hasDialer)
					require.NoError(t, d.hosts.Init([]string{"zk1:2281"}))
					start := time.Now()
					conn, err := server.connect(d)
					require.Nil(t, conn)
					require.ErrorContains(t, err, test.says)
					require.ErrorContains(t, err, "zk1")
					require.LessOrEqual(t, time.Since(start), patience+dialGrace)
					synctest.Wait()
					require.Zero(t, server.open.Load(), "the socket is closed before a callback that hangs returns")
					require.Equal(t, test.hasPanic, o.panics.Load() > 0)
					close(released)
					<-d.FinishUserCalls()
					require.Zero(t, server.open.Load())
				})
			})
		}
	}
}

// With TLS a server is identified by its name, not its address, unless the user sets another name.
func TestTLSVerifiesTheNameOfTheServer(t *testing.T) {
	for name, test := range map[string]struct {
		server, configured, certified, asked, dialled string
		hasDialer                                     bool
	}{
		"a name":                       {server: "zk1:2281", certified: "zk1", asked: "zk1", dialled: "10.0.0.9:2281"},
		"a name, the user's dialer":    {server: "zk1:2281", certified: "zk1", asked: "zk1", dialled: "zk1:2281", hasDialer: true},
		"the user's ServerName":        {server: "zk1:2281", configured: "zk.example", certified: "zk.example", asked: "zk.example", dialled: "10.0.0.9:2281"},
		"an address":                   {server: "10.0.0.7:2281", certified: "10.0.0.7", asked: "", dialled: "10.0.0.7:2281"},
		"an address of IPv6":           {server: "[fd00::1]:2281", certified: "fd00::1", asked: "", dialled: "[fd00::1]:2281"},
		"an address with a ServerName": {server: "10.0.0.7:2281", configured: "zk1", certified: "zk1", asked: "zk1", dialled: "10.0.0.7:2281"},
	} {
		t.Run(name, func(t *testing.T) {
			certificate, pool := issue(t, test.certified)
			server := newTLSServer(t, certificate)
			settings := &tls.Config{RootCAs: pool, ServerName: test.configured, MinVersion: tls.VersionTLS12}
			d := server.dialer(&testOwner{patience: time.Minute}, settings, test.hasDialer)
			require.NoError(t, d.hosts.Init([]string{test.server}))
			_, err := server.connect(d)
			require.NoError(t, err)
			server.mu.Lock()
			defer server.mu.Unlock()
			require.Equal(t, []string{test.asked}, server.asked)
			require.Equal(t, []string{test.dialled}, server.dialed)
			require.Equal(t, test.configured, settings.ServerName, "the user's settings stay as they are")
		})
	}
}

// A certificate callback is called for each connection, because the certificate may be renewed.
func TestCertificateByCallback(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				certificate, pool := issue(t, "zk1")
				server := newTLSServer(t, certificate)
				server.settings.ClientAuth = tls.RequireAnyClientCert
				first, _ := issue(t, "first")
				second, _ := issue(t, "second")
				present := &first
				settings := &tls.Config{
					RootCAs: pool, MinVersion: version, MaxVersion: version, Certificates: []tls.Certificate{certificate},
					GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return present, nil },
				}
				d := server.dialer(&testOwner{patience: time.Minute}, settings, false)
				require.NoError(t, d.hosts.Init([]string{"zk1:2281"}))
				for _, next := range []*tls.Certificate{&second, nil} {
					_, err := server.connect(d)
					require.NoError(t, err)
					synctest.Wait()
					present = next
				}
				server.mu.Lock()
				defer server.mu.Unlock()
				require.Equal(t, []string{"first", "second"}, server.shown)
			})
		})
	}
}

// The bounds of the version hold in both directions.
func TestTLSVersionsOfTheUser(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		testkit.Bubble(t, func(t *testing.T) {
			certificate, pool := issue(t, "zk1")
			server := newTLSServer(t, certificate)
			var agreed uint16
			settings := &tls.Config{
				RootCAs: pool, MinVersion: tls.VersionTLS12, MaxVersion: version,
				VerifyConnection: func(state tls.ConnectionState) error {
					agreed = state.Version
					return nil
				},
			}
			d := server.dialer(&testOwner{patience: time.Minute}, settings, false)
			require.NoError(t, d.hosts.Init([]string{"zk1:2281"}))
			_, err := server.connect(d)
			require.NoError(t, err)
			require.Equal(t, version, agreed)
		})
	}
}
