package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// Cause is why a server hangs up on new connections, as far as a probe can find out.
type Cause int

// The causes.
const (
	UnknownCause Cause = iota
	OnlyServerHasTLS
	OnlyClientHasTLS
	ClosedUnasked // each connection ends before the client sends anything
)

func (c Cause) String() string {
	switch c {
	case OnlyServerHasTLS:
		return "the server speaks TLS on this port, and this client does not"
	case OnlyClientHasTLS:
		return "the server does not speak TLS on this port, and this client does"
	case ClosedUnasked:
		return "the server closes connections before any request: there are more from this address than maxClientCnxns allows, or a proxy has no server behind it"
	case UnknownCause:
	}
	return "no quorum, a read-only server, more connections from this address than maxClientCnxns allows, or TLS on one side only"
}

const (
	probeTime   = time.Second            // bounds a probe
	unaskedTime = 200 * time.Millisecond // how soon a server ends a connection that it does not want
)

// FindCause finds out why a server hangs up on a client, or falls silent, in the course of the first exchange: FindCause opens another connection,
// without TLS, sends nothing for a while, and then speaks the way that the client does not.
func FindCause(ctx context.Context, open func(context.Context) (net.Conn, error), clientHasTLS bool) Cause {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	conn, err := open(ctx)
	if err != nil {
		return UnknownCause
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetReadDeadline(time.Now().Add(unaskedTime)) // if that fails, so does Read, by the end of ctx
	if _, err := conn.Read(make([]byte, 1)); IsHangUp(err) {
		return ClosedUnasked
	}
	_ = conn.SetReadDeadline(time.Time{}) // ctx bounds the rest
	switch {
	case clientHasTLS && answersWord(conn):
		return OnlyClientHasTLS
	case !clientHasTLS && speaksTLS(ctx, conn):
		return OnlyServerHasTLS
	}
	return UnknownCause
}

// answersWord reports whether a server answers a four-letter word, if only with a refusal. A server with TLS waits for more, or answers with an
// alert, whose first byte is no text.
func answersWord(conn net.Conn) bool {
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return false
	}
	var first [1]byte
	_, err := io.ReadFull(conn, first[:])
	return err == nil && first[0] >= ' '
}

// speaksTLS reports whether a server answers the first message of TLS, if only with an alert.
func speaksTLS(ctx context.Context, conn net.Conn) bool {
	err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) //nolint:gosec // nothing is sent
	return err == nil || isAlert(err)
}

// isWithoutTLS reports whether a server answered the first message of TLS with other data.
func isWithoutTLS(err error) bool {
	var header tls.RecordHeaderError
	return errors.As(err, &header)
}
