package dial

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Members are the servers of an ensemble, as its configuration lists them.
type Members struct {
	Version   int64    // of the configuration
	Addresses []string // host:port of each server that says where it takes clients
	Total     int      // servers, with those that do not say so
}

var errNotConfig = errors.New("not the configuration of an ensemble")

// ParseMembers reads the configuration in the znode /zookeeper/config, which has a line for each server, and the version in
// hex.
//
//	server.1=zk1:2888:3888:participant;zk1:2181;zk1:2281
//
// Behind the first semicolon is the address for clients, behind the second the one for clients with TLS; isSecure selects. Both may be
// missing, as for a server whose client port is in a line of its own of zoo.cfg (QuorumServer.toString). A server that takes clients
// on all its addresses is reached by the name at the beginning. Names stay names, because an address may change. The ports of the
// quorum are for no client.
func ParseMembers(config []byte, isSecure bool) (m Members, err error) {
	lines := bufio.NewScanner(bytes.NewReader(config))
	for lines.Scan() {
		key, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		switch {
		case key == "version":
			if m.Version, err = strconv.ParseInt(value, 16, 64); err != nil {
				return Members{}, fmt.Errorf("%w: version %q", errNotConfig, value)
			}
		case !ok || !strings.HasPrefix(key, "server."): // group and weight, or nothing
		default:
			m.Total++
			address, err := clientAddress(value, isSecure)
			if err != nil {
				return Members{}, fmt.Errorf("%w: %s: %w", errNotConfig, key, err)
			}
			if address != "" {
				m.Addresses = append(m.Addresses, address)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return Members{}, fmt.Errorf("%w: %w", errNotConfig, err)
	}
	return m, nil
}

// clientAddress returns where a server takes clients, "" if its line does not say so.
func clientAddress(line string, isSecure bool) (string, error) {
	parts := strings.Split(line, ";")
	at := 1
	if isSecure {
		at = 2
	}
	if len(parts) <= at || strings.TrimSpace(parts[at]) == "" {
		return "", nil
	}
	host, port, err := splitClient(strings.TrimSpace(parts[at]))
	if err != nil {
		return "", err
	}
	if isUnspecified(host) {
		if host, err = quorumHost(parts[0]); err != nil {
			return "", err
		}
	}
	return net.JoinHostPort(host, port), nil
}

// splitClient splits "host:port" or "port".
func splitClient(text string) (host, port string, err error) {
	if !strings.Contains(text, ":") {
		text = ":" + text
	}
	if host, port, err = net.SplitHostPort(text); err != nil {
		return "", "", err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", "", fmt.Errorf("%q is not a port", port)
	}
	return host, port, nil
}

// isUnspecified reports whether a host stands for all addresses of the server.
func isUnspecified(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "" || err == nil && address.IsUnspecified()
}

// quorumHost returns the first host in "host:port:port:role", which may have alternatives behind bars.
func quorumHost(text string) (string, error) {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "|")
	host, _, ok := strings.Cut(text, ":")
	if strings.HasPrefix(text, "[") {
		host, _, ok = strings.Cut(text[1:], "]:")
	}
	if !ok || host == "" || isUnspecified(host) {
		return "", fmt.Errorf("%q names no host", text)
	}
	return host, nil
}

// maxServers bounds the servers that suggestions add to.
const maxServers = 64

// Follow makes the members of the ensemble the servers to try. A server given to the user's Connect that is not known to have
// left stays a server to try, because the members' addresses may be unreachable from here, or match no certificate or
// principal. Unless it is a member, it is a last resort for hosts.takeUntried.
func (d *Dialer) Follow(members []string) { d.hosts.names.follow(members) }

// Suggest adds servers to those to try, up to maxServers, and reports whether any is new. No server leaves by a suggestion.
func (d *Dialer) Suggest(servers []string) (isNew bool) { return d.hosts.names.suggest(servers) }

// ReachMember opens and closes a connection, and reports whether a member accepts connections now.
func (d *Dialer) ReachMember() bool {
	all, _ := d.hosts.names.hosts()
	for _, member := range all {
		if member.isLastResort || member.err != nil {
			continue
		}
		if conn, err := d.openWithin(d.owner.Patience(), "tcp", member); err == nil {
			_ = conn.Close()
			return true
		}
	}
	return false
}

// HasLeft reports whether the server was a member of the ensemble, and is none any more.
func (a *Attempt) HasLeft() bool { return a.dialer.hosts.names.hasLeft(a.to) }

// follow is Follow.
func (n *names) follow(members []string) {
	n.mu.Lock()
	next := n.serversLocked(members)
	n.noteLeftLocked(next)
	var given []server // first, because the first of two names with the same address stands for both
	for _, s := range n.given {
		if s.isLastResort = !n.matchesAny(next, s); !s.isLastResort || !n.matchesAny(n.left, s) {
			given = append(given, s)
		}
	}
	n.servers = slices.Concat(given, slices.DeleteFunc(next, func(s server) bool { return hasText(given, s) }))
	n.changes.AnnounceLocked()
	n.mu.Unlock()
	n.begin()
}

// suggest is Suggest.
func (n *names) suggest(servers []string) (isNew bool) {
	n.mu.Lock()
	for _, s := range n.serversLocked(servers) {
		n.left = slices.DeleteFunc(n.left, func(left server) bool { return left.text == s.text })
		if s.isSuggested = true; !hasText(n.servers, s) && len(n.servers) < maxServers {
			n.servers, isNew = append(n.servers, s), true
		}
	}
	n.changes.AnnounceLocked()
	n.mu.Unlock()
	n.begin()
	return isNew
}

// serversLocked returns the servers with some texts.
func (n *names) serversLocked(texts []string) (servers []server) {
	known := map[string]*name{}
	for _, s := range slices.Concat(n.left, n.given, n.servers) {
		known[s.name.text] = s.name
	}
	for _, text := range texts {
		if host, port, err := net.SplitHostPort(text); err == nil {
			servers = append(servers, server{text: text, port: port, name: n.nameOf(known, host), isAdded: true})
		}
	}
	return servers
}

// noteLeftLocked records which members left, and which are back.
func (n *names) noteLeftLocked(members []server) {
	var left []server
	for _, s := range slices.Concat(n.left, n.servers) {
		isMember := n.isFollowing && !s.isLastResort && !s.isSuggested
		if isMember && !n.matchesAny(members, s) && !n.matchesAny(left, s) {
			left = append(left, s)
		}
	}
	n.left, n.isFollowing = left, true
}

// hasLeft reports whether a host was a member, and is none any more.
func (n *names) hasLeft(h host) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	isOf := func(servers []server) bool {
		for _, s := range servers {
			if s.text == h.server {
				return true
			}
			for _, address := range s.name.addresses {
				if !n.isByName && net.JoinHostPort(address, s.port) == h.address {
					return true
				}
			}
		}
		return false
	}
	var members []server
	for _, s := range n.servers {
		if !s.isLastResort {
			members = append(members, s)
		}
	}
	return isOf(n.left) && !isOf(members)
}

func hasText(servers []server, s server) bool {
	return slices.ContainsFunc(servers, func(other server) bool { return other.text == s.text })
}

// matchesAny reports whether a server is one of servers: by its name and port, or by an address. An address does not identify a server where
// certificates or logins go by name.
func (n *names) matchesAny(servers []server, s server) bool {
	if n.isByName {
		return hasText(servers, s)
	}
	return slices.ContainsFunc(servers, func(other server) bool {
		return other.text == s.text || other.port == s.port &&
			slices.ContainsFunc(s.name.addresses, func(address string) bool { return slices.Contains(other.name.addresses, address) })
	})
}
