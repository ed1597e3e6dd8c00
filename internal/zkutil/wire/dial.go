package wire

import (
	"context"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// newDialer returns the function that opens a socket for the wire: the user's dialer or net.Dialer,
// with TLS on top where it is configured. The time that one dial may take includes the handshake of
// TLS.
func newDialer(ctx context.Context, cfg Config, nameOf func(address string) string) dialFunc {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		var conn net.Conn
		var err error
		if cfg.Dialer != nil {
			conn, err = cfg.Dialer(network, address, timeout)
		} else {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
		}
		if err != nil || cfg.TLS == nil {
			return conn, err
		}
		settings := cfg.TLS.Clone()
		if settings.ServerName == "" {
			settings.ServerName = nameOf(address)
		}
		return startTLS(ctx, conn, settings, address)
	}
}

// explainHangUp adds the possible reasons to the error of a server that hung up before it answered.
func explainHangUp(err error) error {
	if !zkutil.IsAny(err, io.EOF, syscall.ECONNRESET) {
		return err
	}
	return fmt.Errorf("%w (hung up without an answer: no quorum, a read-only server, too many clients, or TLS on one side only)", err)
}
