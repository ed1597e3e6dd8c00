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

// ParseMembers reads the configuration that servers keep in /zookeeper/config: a line for each server, and the version in hex.
//
//	server.1=zk1:2888:3888:participant;zk1:2181;zk1:2281
//
// Behind the first semicolon is the address for clients, behind the second the one for clients with TLS; isSecure selects. Both may be
// missing, as for a server whose client port is in a line of its own of zoo.cfg (QuorumServer.toString). A server that takes
// clients on all its addresses is reached by the name at the beginning. Names stay names: an address may change.
// The ports of the quorum are for no client.
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

// Follow makes the members of the ensemble the servers to try. A server that was configured, and is not known to have left, is the last
// resort while no member can be reached, because the members may have addresses that lead nowhere from here.
func (d *Dialer) Follow(members []string) { d.hosts.names.follow(members) }

// ReachMember reports whether a member takes connections now, after ReachMember has opened one and closed it.
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
	if n.configured == nil {
		n.configured = n.servers
	}
	known := map[string]*name{}
	for _, s := range slices.Concat(n.left, n.configured, n.servers) {
		known[s.name.text] = s.name
	}
	var next []server
	for _, text := range members {
		if host, port, err := net.SplitHostPort(text); err == nil {
			next = append(next, server{text: text, port: port, name: n.nameOf(known, host)})
		}
	}
	n.noteLeftLocked(next)
	for _, s := range n.configured {
		if !matchesAny(next, s) && !matchesAny(n.left, s) {
			s.isLastResort = true
			next = append(next, s)
		}
	}
	n.servers = next
	n.changes.AnnounceLocked()
	n.mu.Unlock()
	n.begin()
}

// noteLeftLocked notes which members have left, and which are back.
func (n *names) noteLeftLocked(members []server) {
	var left []server
	for _, s := range slices.Concat(n.left, n.servers) {
		if n.isFollowing && !s.isLastResort && !matchesAny(members, s) && !matchesAny(left, s) {
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
				if net.JoinHostPort(address, s.port) == h.address {
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

// matchesAny reports whether a server is one of servers: by its name and port, or by an address.
func matchesAny(servers []server, s server) bool {
	for _, other := range servers {
		if other.text == s.text {
			return true
		}
		if other.port != s.port {
			continue
		}
		for _, address := range s.name.addresses {
			if slices.Contains(other.name.addresses, address) {
				return true
			}
		}
	}
	return false
}
