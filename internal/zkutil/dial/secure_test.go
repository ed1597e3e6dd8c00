package dial

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// All servers together are hopeless only if each refused permanently twice in a row.
func TestAllServersRefuse(t *testing.T) {
	h := newHosts(t, "a:1", "b:1")
	h.Next() // begins the round
	require.NotEqual(t, CertainRefusal, h.noteFailure("a:1", CertainRefusal))
	require.NotEqual(t, CertainRefusal, h.noteFailure("b:1", CertainRefusal))
	require.NotEqual(t, CertainRefusal, h.noteFailure("a:1", NoRefusal), "another failure starts the count again")
	require.NotEqual(t, CertainRefusal, h.noteFailure("b:1", CertainRefusal))
	require.NotEqual(t, CertainRefusal, h.noteFailure("a:1", CertainRefusal), "there may be several servers behind an address")
	require.Equal(t, CertainRefusal, h.noteFailure("a:1", CertainRefusal))
	h.noteFailure("no longer:1", CertainRefusal)
	require.Len(t, h.refusals, 2, "an address of an earlier round is forgotten")
}

func TestPermanentRefusalsByTLS(t *testing.T) {
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")}
	for err, want := range map[error]bool{
		alert:                              true,
		fmt.Errorf("handshake: %w", alert): true,
		&net.OpError{Op: "remote error", Err: errors.New("tls: internal error")}: false,
		&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}:     true,
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}:                      false,
		io.EOF:                                  false,
		explainHangUp(io.EOF, OnlyServerHasTLS): true,
		explainHangUp(io.EOF, OnlyClientHasTLS): true,
		explainHangUp(io.EOF, ClosedUnasked):    false,
		ExplainHangUp(io.EOF):                   false,
		tls.RecordHeaderError{Msg: "no TLS"}:    true,
	} {
		require.Equal(t, want, isRefusedByTLS(err), "%v", err)
	}
}

func TestRefusalsOfACertificateAreExplained(t *testing.T) {
	require.NoError(t, (&certificateRequest{}).refusalReason(), "the server has not asked")
	for want, request := range map[string]*certificateRequest{
		"none was given":                     {isMade: true},
		"none of those given matches: chain": {isMade: true, unsuitableErr: errors.New("chain")},
		"malformed certificate":              {isMade: true, shown: &tls.Certificate{Certificate: [][]byte{{1}}}},
	} {
		require.ErrorContains(t, request.refusalReason(), want)
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

// A server that closes each connection at once may do so before the dial returns, so that the dial itself fails.
func TestHangUpOfADialIsExplained(t *testing.T) {
	for _, cause := range []error{syscall.ECONNRESET, syscall.EPIPE} {
		failure := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", cause)}
		d := New(t.Context(), Config{Dialer: func(string, string, time.Duration) (net.Conn, error) { return nil, failure }}, &testOwner{})
		_, err := d.Open("tcp", "a:2181", time.Second)
		require.ErrorIs(t, err, cause)
		require.ErrorContains(t, err, "maxClientCnxns")
	}
}
