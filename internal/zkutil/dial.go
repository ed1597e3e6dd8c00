package zkutil

import (
	"context"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// dialer returns the function that opens a socket for the wire: the user's dialer
// or net.Dialer, with TLS on top where it is configured. The handshake of TLS
// counts into the time that one dial may take.
func dialer(ctx context.Context, cfg Config, nameOf func(address string) string) dialFunc {
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
		return secure(ctx, conn, settings, address)
	}
}

// withoutAnswer adds to the end of a connection what it may mean at its beginning.
func withoutAnswer(err error) error {
	if !isAny(err, io.EOF, syscall.ECONNRESET) {
		return err
	}
	return fmt.Errorf("%w (hung up without an answer: no quorum, a read-only server, too many clients, or TLS on one side only)", err)
}

// hostAddress is what a znode says when it was given no data: the host's address,
// as with Curator. Never empty, for Curator's participants must be able to read it.
func (s *Session) hostAddress() string {
	if s.wire != nil {
		if address := s.wire.localAddress(); address != "" {
			return address
		}
	}
	if addresses, err := net.InterfaceAddrs(); err == nil {
		for _, address := range addresses {
			if ip, ok := address.(*net.IPNet); ok && !ip.IP.IsLoopback() {
				return ip.IP.String()
			}
		}
	}
	return "127.0.0.1"
}
