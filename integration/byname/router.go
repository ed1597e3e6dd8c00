package byname

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"time"
)

// Router ends the TLS of the clients, and carries each connection to the server named by the client, as an ingress does.
// The router answers the handshake of TLS in any state of the server.
type Router struct {
	listener net.Listener
	settings *tls.Config
	roots    []byte
	routes   map[string]string
	work     sync.WaitGroup // everything; joined in Close

	mu       sync.Mutex // protects what is below
	isClosed bool
	conns    map[net.Conn]struct{}
	taken    map[string]int // connections, by name
}

// StartRouter returns a router to upstreams by name, on the loopback interface.
func StartRouter(routes map[string]string) (*Router, error) {
	r := &Router{routes: routes, conns: map[net.Conn]struct{}{}, taken: map[string]int{}}
	certificates := map[string]*tls.Certificate{}
	for name := range routes {
		certificate, err := Issue(name, 100*365*24*time.Hour)
		if err != nil {
			return nil, err
		}
		certificates[name] = &certificate
		r.roots = append(r.roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})...)
	}
	r.settings = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if certificate := certificates[hello.ServerName]; certificate != nil {
			r.taken[hello.ServerName]++
			return certificate, nil
		}
		return nil, fmt.Errorf("byname: no server has the name %q", hello.ServerName)
	}}
	var err error
	if r.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("byname: %w", err)
	}
	r.work.Go(func() { r.accept(r.listener) }) // ends when Close closes the listener
	return r, nil
}

// ServeAlso makes the router take connections from another listener, until stop is called.
func (r *Router) ServeAlso(listener net.Listener) (stop func()) {
	r.work.Go(func() { r.accept(listener) }) // ends with stop, which is called before Close
	return func() { _ = listener.Close() }
}

// Port returns the port of the router, at 127.0.0.1.
func (r *Router) Port() string {
	_, port, _ := net.SplitHostPort(r.listener.Addr().String())
	return port
}

// Roots returns the certificates that clients have to trust, as PEM.
func (r *Router) Roots() []byte { return r.roots }

// Taken returns the number of connections that asked for a name.
func (r *Router) Taken(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken[name]
}

// Close ends every connection. It may be called more than once.
func (r *Router) Close() {
	_ = r.listener.Close()
	r.mu.Lock()
	r.isClosed = true
	for conn := range r.conns {
		_ = conn.Close()
	}
	r.mu.Unlock()
	r.work.Wait()
}

func (r *Router) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		r.work.Go(func() { r.carry(conn) }) // ends with either side, or Close
	}
}

// keep makes Close close a connection. It reports false once the router is closed.
func (r *Router) keep(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed {
		_ = conn.Close()
		return false
	}
	r.conns[conn] = struct{}{}
	return true
}

func (r *Router) drop(conn net.Conn) {
	_ = conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn)
}

func (r *Router) carry(conn net.Conn) {
	if !r.keep(conn) {
		return
	}
	defer r.drop(conn)
	client := tls.Server(conn, r.settings)
	if client.Handshake() != nil {
		return
	}
	server, err := net.Dial("tcp", r.routes[client.ConnectionState().ServerName]) //nolint:noctx // on the loopback interface
	if err != nil || !r.keep(server) {
		return
	}
	defer r.drop(server)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, server)
		_ = conn.Close()
	})
	_, _ = io.Copy(server, client)
	_ = server.Close()
	back.Wait()
}

// Issue returns a self-signed certificate for a name.
func Issue(name string, valid time.Duration) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("byname: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("byname: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// Settings returns the settings of a client that trusts roots, which are PEM.
func Settings(roots []byte) (*tls.Config, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(roots) {
		return nil, errors.New("byname: no certificate among the roots")
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
