package zkutil

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
)

// secured is a connection with TLS on it. Its errors say more than the server's alert,
// which is all that a refused client is told: handshake failure, and be it that the
// client has shown no certificate. From TLS 1.3 on the alert comes with the first read.
type secured struct {
	net.Conn

	address string
	asked   *certificateRequest
}

// secure puts TLS on conn, and closes it where that fails.
func secure(ctx context.Context, conn net.Conn, settings *tls.Config, address string) (net.Conn, error) {
	asked := &certificateRequest{choose: settings.GetClientCertificate, given: settings.Certificates}
	settings.GetClientCertificate = asked.answer
	client := tls.Client(conn, settings)
	s := &secured{client, address, asked}
	if err := client.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, s.explain(withoutAnswer(err))
	}
	return s, nil
}

func (s *secured) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if isAlert(err) {
		err = s.explain(err)
	}
	return n, err
}

func (s *secured) explain(err error) error {
	if why := s.asked.why(); why != "" && isAlert(err) {
		err = fmt.Errorf("%w: %s", err, why)
	}
	return fmt.Errorf("TLS with %s: %w", s.address, err)
}

// isAlert reports whether err is what the other end has to say about TLS.
func isAlert(err error) bool {
	var remote *net.OpError
	return errors.As(err, &remote) && remote.Op == "remote error"
}

// accidents are the alerts that tell of an accident. They are known by their texts alone.
var accidents = []string{"internal error", "bad record MAC", "error decoding message"} //nolint:gochecknoglobals // a constant list

// refusedByTLS reports whether one end has found the other's certificate wrong, or TLS
// impossible: a matter of configuration, which another attempt does not change.
func refusedByTLS(err error) bool {
	if _, ours := errors.AsType[*tls.CertificateVerificationError](err); ours {
		return true
	}
	return isAlert(err) && !slices.ContainsFunc(accidents, func(text string) bool { return strings.Contains(err.Error(), "tls: "+text) })
}

// certificateRequest is what a server has asked for, and what it was shown.
type certificateRequest struct {
	choose func(*tls.CertificateRequestInfo) (*tls.Certificate, error) // the user's, or nil
	given  []tls.Certificate

	made  bool
	shown *tls.Certificate
	unfit error // why the last of those given was not shown
}

// answer chooses the certificate as package tls does.
func (r *certificateRequest) answer(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	r.made = true
	if r.choose != nil {
		shown, err := r.choose(info)
		r.shown = shown
		return shown, err
	}
	for i := range r.given {
		if r.unfit = info.SupportsCertificate(&r.given[i]); r.unfit == nil {
			r.shown = &r.given[i]
			return r.shown, nil
		}
	}
	return new(tls.Certificate), nil // the server may do without
}

// why says what a server may have against our certificate; "" if it never asked.
func (r *certificateRequest) why() string {
	switch {
	case !r.made:
		return ""
	case r.unfit != nil:
		return fmt.Sprintf("the server asks for a client certificate, and none of those given suits it: %v", r.unfit)
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
