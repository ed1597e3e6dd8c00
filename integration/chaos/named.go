package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"

	"github.com/zkrecipes/zkrecipes/integration/byname"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Every other client finds its servers by name. All names have one address, that of a router, which distinguishes the servers
// by the name in TLS and continues on the client's lines. So all faults of lines also affect servers behind one address.

// ByName makes a client process use servers' names.
type ByName struct {
	NameServer string // its address
	Roots      []byte // the certificates of the servers, as PEM
}

// findsByName reports whether a client finds its servers by name.
func (s Setup) findsByName() bool { return s.Peer == "" && s.Proc%2 == 0 }

// named is the router in front of the lines of a client that finds its servers by name.
type named struct {
	names  *byname.NameServer
	router *byname.Router
}

// startNamed puts a name server and a router before lines, and completes the setup of their client.
func startNamed(s *Setup, lines []*faultproxy.Proxy) (*named, error) {
	names, err := byname.StartNameServer()
	if err != nil {
		return nil, err
	}
	routes := map[string]string{}
	for i, line := range lines {
		name := fmt.Sprintf("zk%d.chaos.test", i+1)
		names.Set(name, netip.MustParseAddr("127.0.0.1"))
		routes[name] = line.Addr()
	}
	router, err := byname.StartRouter(routes)
	if err != nil {
		names.Close()
		return nil, err
	}
	for name := range routes {
		s.Servers = append(s.Servers, net.JoinHostPort(name, router.Port()))
	}
	slices.Sort(s.Servers)
	s.ByName = &ByName{NameServer: names.Addr(), Roots: router.Roots()}
	return &named{names, router}, nil
}

func (n *named) close() {
	n.router.Close()
	n.names.Close()
}

// useNames makes this process ask the name server of its setup, and returns the options of its clients.
func (s Setup) useNames() ([]recipes.Option, error) {
	if s.ByName == nil {
		return nil, nil
	}
	net.DefaultResolver = byname.Resolver(s.ByName.NameServer)
	settings, err := byname.Settings(s.ByName.Roots)
	if err != nil {
		return nil, err
	}
	return []recipes.Option{recipes.WithTLS(settings)}, nil
}

// namedFaults affect only the clients that find their servers by name. They excuse no violation.
var namedFaults = []clientFault{
	{"silent name server", silentNameServer},
	{"silent server behind one address", silentBehindOneAddress},
}

// silentNameServer forces a client to look for its servers, more than once, while its name server does not answer.
func silentNameServer(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) (hit bool) {
	again, span := r.IntN(2) == 0, n.timeout/4+n.span(r)
	if c.named == nil {
		return false
	}
	asked := c.named.names.Asked()
	c.named.names.Silence(true)
	defer c.named.names.Silence(false)
	c.cut()
	pause(ctx, span/2)
	if again {
		c.cut()
	}
	pause(ctx, span/2)
	return c.named.names.Asked() > asked
}

// silentBehindOneAddress takes the server away that a client uses. The client has to ask for another name at the same address.
func silentBehindOneAddress(ctx context.Context, n *Nemesis, r *rand.Rand, c *client) bool {
	isCut, span := r.IntN(2) == 0, n.span(r)
	i := slices.IndexFunc(c.lines, func(line *faultproxy.Proxy) bool { return line.Live() > 0 })
	if c.named == nil || i < 0 {
		return false
	}
	c.lines[i].Hold()
	if isCut {
		c.lines[i].Cut()
	}
	pause(ctx, span)
	c.release()
	return true
}
