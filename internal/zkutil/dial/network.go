package dial

import (
	"context"
	"net"
)

// Network resolves names and opens sockets if the user has no dialer. A nil field stands for the system's function.
type Network struct {
	LookupHost  func(ctx context.Context, name string) (addresses []string, err error)
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

// withDefaults returns n with the system's functions in place of nil.
func (n Network) withDefaults() Network {
	if n.LookupHost == nil {
		n.LookupHost = lookUpHost
	}
	if n.DialContext == nil {
		n.DialContext = new(net.Dialer).DialContext
	}
	return n
}

// lookUpHost asks the program's current resolver, and returns as soon as ctx ends, even if the resolver hangs in a dial, for which
// net.Resolver's LookupHost would wait.
func lookUpHost(ctx context.Context, name string) (addresses []string, err error) {
	found, err := net.DefaultResolver.LookupIPAddr(ctx, name)
	for _, address := range found {
		addresses = append(addresses, address.String())
	}
	return addresses, err
}
