package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// tlsConn is a connection with TLS. Errors explain the server's alert, because the alert alone says "handshake
// failure" even when the client shows no certificate. From TLS 1.3 on, the first read returns the alert.
type tlsConn struct {
	net.Conn

	server    string
	request   *certificateRequest
	hasAnswer atomic.Bool // the server sent data
}

// TLSFor returns a copy of settings for a connection to the server of a name, unless settings name another server.
// VerifyConnection gets that name also if the name is an IP address, for which package tls leaves the name out.
func TLSFor(name string, settings *tls.Config) *tls.Config {
	settings = settings.Clone()
	if settings.ServerName == "" {
		settings.ServerName = name
	}
	if verify := settings.VerifyConnection; verify != nil {
		expected := settings.ServerName
		settings.VerifyConnection = func(state tls.ConnectionState) error {
			state.ServerName = expected
			return verify(state)
		}
	}
	return settings
}

// StartTLS performs the handshake of TLS on conn with a server that does not answer for a Dialer, and closes conn if the handshake fails.
func StartTLS(ctx context.Context, conn net.Conn, settings *tls.Config, server string) (net.Conn, error) {
	return startTLS(ctx, conn, settings, server, func() Cause { return UnknownCause })
}

// startTLS performs the handshake of TLS on conn, and closes conn if the handshake fails. findCause is called if the server hangs up.
func startTLS(ctx context.Context, conn net.Conn, settings *tls.Config, server string, findCause func() Cause) (net.Conn, error) {
	request := &certificateRequest{userChoice: settings.GetClientCertificate, candidates: settings.Certificates}
	settings.GetClientCertificate = request.chooseCertificate
	client := tls.Client(conn, settings)
	c := &tlsConn{Conn: client, server: server, request: request}
	isDone := false
	defer func() {
		if !isDone { // after a panic in a function of the user as well
			_ = conn.Close()
		}
	}()
	if err := client.HandshakeContext(ctx); err != nil {
		switch {
		case isWithoutTLS(err):
			err = fmt.Errorf("%w: %v", err, OnlyClientHasTLS)
		case IsHangUp(err):
			_ = conn.Close() // one socket at a time
			err = explainHangUp(err, findCause())
		}
		return nil, c.explainError(err)
	}
	isDone = true
	return c, nil
}

func (c *tlsConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.hasAnswer.Store(true)
	}
	if isAlert(err) || IsHangUp(err) && !c.hasAnswer.Load() && errors.Is(c.request.refusalReason(), ErrNoCertificate) {
		err = c.explainError(err) // a server may hang up so soon that the alert is lost
	}
	return n, err
}

func (c *tlsConn) explainError(err error) error {
	if invalid, ok := zkutil.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		err = fmt.Errorf("%w: of the server: %w", zkutil.ErrCertificateExpired, err)
	}
	if isAlert(err) && c.request.hasExpired() {
		err = fmt.Errorf("%w: of the client: %w", zkutil.ErrCertificateExpired, err)
	}
	if reason := c.request.refusalReason(); reason != nil && (isAlert(err) || IsHangUp(err)) {
		err = fmt.Errorf("%w: %w", err, reason)
	}
	return fmt.Errorf("TLS with %s: %w", c.server, err)
}

// isAlert reports whether err is an alert of TLS from the server.
func isAlert(err error) bool {
	var remote *net.OpError
	return errors.As(err, &remote) && remote.Op == "remote error"
}

// transientAlerts are the alerts after which another attempt may succeed. Package tls exports only the
// texts of alerts.
var transientAlerts = []string{"internal error", "bad record MAC", "error decoding message"} //nolint:gochecknoglobals // a constant list

// isRefusedByTLS reports whether one side refused the other's certificate, or TLS is impossible, for example because only one
// side speaks it. The configuration is wrong then, and another attempt fails too.
func isRefusedByTLS(err error) bool {
	if h, ok := zkutil.AsType[*hangUpError](err); ok && (h.cause == OnlyServerHasTLS || h.cause == OnlyClientHasTLS) || isWithoutTLS(err) {
		return true
	}
	if _, ours := zkutil.AsType[*tls.CertificateVerificationError](err); ours {
		return true
	}
	return isAlert(err) && !slices.ContainsFunc(transientAlerts, func(text string) bool { return strings.Contains(err.Error(), "tls: "+text) })
}

// certificateRequest is a server's request for a client certificate, and the certificate that the client has
// shown.
type certificateRequest struct {
	userChoice func(*tls.CertificateRequestInfo) (*tls.Certificate, error) // the user's, or nil
	candidates []tls.Certificate

	isMade        bool
	shown         *tls.Certificate
	unsuitableErr error // why the last candidate was not shown
}

// chooseCertificate chooses the certificate as package tls does.
func (r *certificateRequest) chooseCertificate(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	r.isMade = true
	if r.userChoice != nil {
		shown, err := r.userChoice(info)
		r.shown = shown
		return shown, err
	}
	for i := range r.candidates {
		if r.unsuitableErr = info.SupportsCertificate(&r.candidates[i]); r.unsuitableErr == nil {
			r.shown = &r.candidates[i]
			return r.shown, nil
		}
	}
	return new(tls.Certificate), nil // the server may accept a client without a certificate
}

// hasExpired reports whether the client has shown a certificate that is not valid any more.
func (r *certificateRequest) hasExpired() bool {
	if r.shown == nil || len(r.shown.Certificate) == 0 {
		return false
	}
	leaf, err := x509.ParseCertificate(r.shown.Certificate[0])
	return err == nil && time.Now().After(leaf.NotAfter)
}

// ErrNoCertificate means that a server asked for a client certificate, and got none.
var ErrNoCertificate = errors.New("the server asks for a client certificate, but none was given")

// refusalReason returns the possible reason for a refusal of the client's certificate, or nil if the server did not ask for
// one.
func (r *certificateRequest) refusalReason() error {
	switch {
	case !r.isMade:
		return nil
	case r.unsuitableErr != nil:
		return fmt.Errorf("the server asks for a client certificate, but none of those given matches: %w", r.unsuitableErr)
	case r.shown == nil || len(r.shown.Certificate) == 0:
		return ErrNoCertificate
	}
	leaf, err := x509.ParseCertificate(r.shown.Certificate[0])
	switch now := time.Now(); {
	case err != nil:
		return err
	case now.After(leaf.NotAfter):
		return fmt.Errorf("the client certificate %s is only valid until %s", leaf.Subject, leaf.NotAfter.Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("the client certificate %s is only valid from %s", leaf.Subject, leaf.NotBefore.Format(time.RFC3339))
	default:
		return fmt.Errorf("the client certificate was %s, issued by %s", leaf.Subject, leaf.Issuer)
	}
}
