package zktest

import (
	"crypto/tls"
	"net"
)

// secured is the server's end of a connection with TLS on it. Its Close never waits for
// the client, as that of package tls may.
type secured struct {
	*tls.Conn
	below net.Conn
}

// secure puts TLS on a connection if the server has it.
func (s *Server) secure(conn net.Conn) net.Conn {
	if s.cfg.tls == nil {
		return conn
	}
	return secured{tls.Server(conn, s.cfg.tls), conn}
}

// Close ends the connection without a farewell.
func (c secured) Close() error { return c.below.Close() }
