package zkutil

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// Connect gives up at once only if each server has refused, for good, and again.
func TestAllServersRefuse(t *testing.T) {
	h := newHosts(t, "a:1", "b:1")
	h.Next() // begins the round
	require.False(t, h.failed("a:1", true))
	require.False(t, h.failed("b:1", true))
	require.False(t, h.failed("a:1", false), "one may come to its senses")
	require.False(t, h.failed("b:1", true))
	require.False(t, h.failed("a:1", true), "or be one of several behind an address")
	require.True(t, h.failed("a:1", true))
	h.failed("no longer:1", true)
	require.Len(t, h.refusals, 2, "what is not there any more is forgotten")
}

// A provider of the user's may know servers that it has not named yet.
func TestRefusalsOfAUsersHosts(t *testing.T) {
	h := newHosts(t, "a:1")
	h.inner = &zk.DNSHostProvider{}
	for range 5 {
		require.False(t, h.failed("a:1", true))
	}
}

func TestWhatTLSRefusesForGood(t *testing.T) {
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")}
	for err, want := range map[error]bool{
		alert:                              true,
		fmt.Errorf("handshake: %w", alert): true,
		&net.OpError{Op: "remote error", Err: errors.New("tls: internal error")}: false,
		&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}:     true,
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}:                      false,
		io.EOF: false,
	} {
		require.Equal(t, want, refusedByTLS(err), "%v", err)
	}
}

func TestWhatAServerHasAgainstUs(t *testing.T) {
	require.Empty(t, (&certificateRequest{}).why(), "it has not asked")
	for want, asked := range map[string]*certificateRequest{
		"none was given":                      {made: true},
		"none of those given suits it: chain": {made: true, unfit: errors.New("chain")},
		"malformed certificate":               {made: true, shown: &tls.Certificate{Certificate: [][]byte{{1}}}},
	} {
		require.Contains(t, asked.why(), want)
	}
	chosen := &tls.Certificate{}
	asked := &certificateRequest{choose: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return chosen, nil }}
	shown, err := asked.answer(&tls.CertificateRequestInfo{})
	require.NoError(t, err)
	require.Same(t, chosen, shown, "the user's own choice")
}

func TestHangUpIsExplained(t *testing.T) {
	for _, err := range []error{io.EOF, syscall.ECONNRESET} {
		explained := withoutAnswer(err)
		require.ErrorIs(t, explained, err)
		require.ErrorContains(t, explained, "no quorum")
	}
	require.Equal(t, net.ErrClosed, withoutAnswer(net.ErrClosed))
}
