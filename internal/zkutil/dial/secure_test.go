package dial

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

// All servers together are hopeless only if each has refused permanently twice in a row.
func TestAllServersRefuse(t *testing.T) {
	h := newHosts(t, "a:1", "b:1")
	h.Next() // begins the round
	require.False(t, h.noteFailure("a:1", true))
	require.False(t, h.noteFailure("b:1", true))
	require.False(t, h.noteFailure("a:1", false), "another failure starts the count again")
	require.False(t, h.noteFailure("b:1", true))
	require.False(t, h.noteFailure("a:1", true), "there may be several servers behind an address")
	require.True(t, h.noteFailure("a:1", true))
	h.noteFailure("no longer:1", true)
	require.Len(t, h.refusals, 2, "an address of an earlier round is forgotten")
}

// A user's host provider may know servers that it has not returned yet.
func TestServersOfAUserAreNeverHopeless(t *testing.T) {
	h := newHosts(t, "a:1")
	h.inner = (&userCode{}).wrapHosts(&zk.DNSHostProvider{})
	for range 5 {
		require.False(t, h.noteFailure("a:1", true))
	}
}

func TestPermanentRefusalsByTLS(t *testing.T) {
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")}
	for err, want := range map[error]bool{
		alert:                              true,
		fmt.Errorf("handshake: %w", alert): true,
		&net.OpError{Op: "remote error", Err: errors.New("tls: internal error")}: false,
		&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}:     true,
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}:                      false,
		io.EOF: false,
	} {
		require.Equal(t, want, isRefusedByTLS(err), "%v", err)
	}
}

func TestRefusalsOfACertificateAreExplained(t *testing.T) {
	require.Empty(t, (&certificateRequest{}).refusalReason(), "the server has not asked")
	for want, request := range map[string]*certificateRequest{
		"none was given":                      {isMade: true},
		"none of those given suits it: chain": {isMade: true, unsuitableErr: errors.New("chain")},
		"malformed certificate":               {isMade: true, shown: &tls.Certificate{Certificate: [][]byte{{1}}}},
	} {
		require.Contains(t, request.refusalReason(), want)
	}
	chosen := &tls.Certificate{}
	request := &certificateRequest{userChoice: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return chosen, nil }}
	shown, err := request.chooseCertificate(&tls.CertificateRequestInfo{})
	require.NoError(t, err)
	require.Same(t, chosen, shown, "the user's own choice")
}

func TestHangUpIsExplained(t *testing.T) {
	for _, err := range []error{io.EOF, syscall.ECONNRESET, syscall.EPIPE} {
		explained := ExplainHangUp(err)
		require.ErrorIs(t, explained, err)
		require.ErrorContains(t, explained, "no quorum")
		require.ErrorContains(t, explained, "maxClientCnxns")
	}
	require.Equal(t, net.ErrClosed, ExplainHangUp(net.ErrClosed))
}
