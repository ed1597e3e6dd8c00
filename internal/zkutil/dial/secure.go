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
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// tlsConn is a connection with TLS. Errors explain the server's alert, because the alert alone
// says "handshake failure" even when the client has shown no certificate. From TLS 1.3 on the alert
// comes with the first read.
type tlsConn struct {
	net.Conn

	server  string
	request *certificateRequest
}

// startTLS performs the handshake of TLS on conn, and closes conn if the handshake fails.
func startTLS(ctx context.Context, conn net.Conn, settings *tls.Config, server string) (net.Conn, error) {
	request := &certificateRequest{userChoice: settings.GetClientCertificate, candidates: settings.Certificates}
	settings.GetClientCertificate = request.chooseCertificate
	client := tls.Client(conn, settings)
	c := &tlsConn{client, server, request}
	isDone := false
	defer func() {
		if !isDone { // after a panic in a function of the user as well
			_ = conn.Close()
		}
	}()
	if err := client.HandshakeContext(ctx); err != nil {
		return nil, c.explainError(ExplainHangUp(err))
	}
	isDone = true
	return c, nil
}

func (c *tlsConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if isAlert(err) {
		err = c.explainError(err)
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
	if reason := c.request.refusalReason(); reason != "" && isAlert(err) {
		err = fmt.Errorf("%w: %s", err, reason)
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

// isRefusedByTLS reports whether one side has refused the other's certificate, or TLS is impossible.
// The configuration is wrong then, and another attempt fails too.
func isRefusedByTLS(err error) bool {
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

// refusalReason returns why a server may have refused the client's certificate, "" if the server has not asked for a certificate.
func (r *certificateRequest) refusalReason() string {
	switch {
	case !r.isMade:
		return ""
	case r.unsuitableErr != nil:
		return fmt.Sprintf("the server asks for a client certificate, and none of those given suits it: %v", r.unsuitableErr)
	case r.shown == nil || len(r.shown.Certificate) == 0:
		return "the server asks for a client certificate, and none was given"
	}
	leaf, err := x509.ParseCertificate(r.shown.Certificate[0])
	switch now := time.Now(); {
	case err != nil:
		return err.Error()
	case now.After(leaf.NotAfter):
		return fmt.Sprintf("the client certificate %s is only valid until %s", leaf.Subject, leaf.NotAfter.Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Sprintf("the client certificate %s is only valid from %s", leaf.Subject, leaf.NotBefore.Format(time.RFC3339))
	default:
		return fmt.Sprintf("the client certificate was %s, issued by %s", leaf.Subject, leaf.Issuer)
	}
}
