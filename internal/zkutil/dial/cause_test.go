package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// refuse plays a ZooKeeper without a quorum: it answers words, and hangs up on everything else.
func refuse(conn net.Conn) {
	request := make([]byte, 4)
	if _, err := io.ReadFull(conn, request); err == nil && string(request) == "srvr" {
		_, _ = io.WriteString(conn, "This ZooKeeper instance is not currently serving requests\n")
	}
}

// shake dials the next server, and requests a session there, as far as possible.
func (s *tlsServer) shake(d *Dialer) error {
	server, _ := d.hosts.Next()
	conn, attempt, err := d.Dial("tcp", server)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write(make([]byte, 49)); err != nil && !IsHangUp(err) {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 41))
	return attempt.ExplainHangUp(err)
}

// A server closes connections for several reasons with different remedies. The ones that another connection can
// distinguish are named.
func TestCauseOfAHangUp(t *testing.T) {
	for name, test := range map[string]struct {
		hasTLS bool // the client
		serve  func(net.Conn)
		want   Cause
	}{
		"a server with TLS":               {want: OnlyServerHasTLS},
		"a server without a quorum":       {serve: refuse, want: UnknownCause},
		"too many connections":            {serve: func(net.Conn) {}, want: ClosedUnasked},
		"a server without TLS":            {hasTLS: true, serve: refuse, want: OnlyClientHasTLS},
		"too many connections, with TLS":  {hasTLS: true, serve: func(net.Conn) {}, want: ClosedUnasked},
		"a server with TLS that hangs up": {hasTLS: true, serve: func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1<<14)) }, want: UnknownCause},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				certificate, pool := issue(t, "zk1")
				server := newTLSServer(t, certificate)
				server.serve = test.serve
				var settings *tls.Config
				if test.hasTLS {
					settings = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
				}
				d := server.dialer(&testOwner{patience: 5 * time.Second}, settings, false)
				require.NoError(t, d.hosts.Init([]string{"zk1:2281"}))
				start := time.Now()
				err := server.shake(d)
				require.ErrorContains(t, err, test.want.String())
				require.LessOrEqual(t, time.Since(start), probeTime)
				synctest.Wait()
				require.Zero(t, server.open.Load(), "no socket stays open")
				asked := len(server.dialed)
				require.LessOrEqual(t, asked, 2)
				require.ErrorContains(t, server.shake(d), test.want.String())
				require.Len(t, server.dialed, asked+1, "it is asked once")
			})
		})
	}
}

// A server that is unreachable at the second connection gives no reason.
func TestCauseOfAServerOutOfReach(t *testing.T) {
	for _, hasTLS := range []bool{false, true} {
		require.Equal(t, UnknownCause, FindCause(t.Context(), func(context.Context) (net.Conn, error) { return nil, io.EOF }, hasTLS))
	}
}

// A server that hangs up after the TLS handshake needs no question: TLS is not the cause.
func TestNoCauseIsAskedForAfterTLS(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		certificate, pool := issue(t, "zk1")
		server := newTLSServer(t, certificate)
		d := server.dialer(&testOwner{patience: 5 * time.Second}, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, false)
		require.NoError(t, d.hosts.Init([]string{"zk1:2281"}))
		require.ErrorContains(t, server.shake(d), UnknownCause.String())
		require.Len(t, server.dialed, 1)
	})
}

// A server that served this client closes a connection for another reason than TLS, so the client does not ask.
func TestNoCauseIsAskedForAfterAnAnswer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		certificate, _ := issue(t, "zk1")
		server := newTLSServer(t, certificate)
		d := server.dialer(&testOwner{patience: 5 * time.Second}, nil, false)
		require.NoError(t, d.hosts.Init([]string{"zk1:2281"}))
		next, _ := d.hosts.Next()
		conn, attempt, err := d.Dial("tcp", next)
		require.NoError(t, err)
		attempt.NoteAnswer(false)
		require.NoError(t, conn.Close())
		require.ErrorContains(t, server.shake(d), UnknownCause.String())
		require.Len(t, server.dialed, 2)
	})
}

// A server that refuses a client without a certificate may close the connection so soon that its alert is lost.
func TestLostAlertAboutTheClientCertificate(t *testing.T) {
	certificate, pool := issue(t, "zk1")
	server := newTLSServer(t, certificate)
	server.serve = func(conn net.Conn) {
		settings := server.settings.Clone()
		settings.ClientAuth = tls.RequestClientCert
		settings.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return nil }
		if tls.Server(conn, settings).Handshake() == nil {
			_, _ = conn.Read(make([]byte, 1))
		}
	}
	d := server.dialer(&testOwner{patience: time.Minute}, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, false)
	require.NoError(t, d.hosts.Init([]string{"zk1:2281"}))
	err := server.shake(d)
	require.ErrorIs(t, err, ErrNoCertificate)
	require.ErrorContains(t, err, "TLS with zk1")
}

// A server that does not answer the query for the reason costs the client a second.
func TestSilenceAboutTheCause(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		certificate, _ := issue(t, "zk1")
		server := newTLSServer(t, certificate)
		var asked atomic.Int32
		server.serve = func(conn net.Conn) {
			if asked.Add(1) == 1 {
				refuse(conn)
				return
			}
			_, _ = io.Copy(io.Discard, conn)
		}
		d := server.dialer(&testOwner{patience: 5 * time.Second}, nil, false)
		require.NoError(t, d.hosts.Init([]string{"zk1:2281"}))
		start := time.Now()
		require.ErrorContains(t, server.shake(d), UnknownCause.String())
		require.Equal(t, probeTime, time.Since(start))
	})
}
