package session

import "net"

// HostAddress is the address of this host, which contenders without data of their own write into their
// znodes, as with Curator. It is never empty, because Curator's participants could not read that.
func (s *Session) HostAddress() string {
	if s.wire != nil {
		if address := s.wire.LocalAddress(); address != "" {
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
