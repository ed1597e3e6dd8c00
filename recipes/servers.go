package recipes

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// setServers sets the servers, and puts the namespace below their chroot.
func (cfg *config) setServers(given []string) error {
	servers, chroot, err := parseServers(given)
	if err != nil {
		return err
	}
	cfg.Servers, cfg.Chroot, cfg.namespace = servers, chroot, chroot+cfg.namespace
	return nil
}

// parseServers returns the servers without surrounding spaces, and the path behind the last server, "" if there is none or "/".
// parseServers fails if any of the servers is invalid.
func parseServers(given []string) (servers []string, chroot string, err error) {
	text := strings.Join(given, ",")
	if strings.Trim(text, ", \t\r\n") == "" {
		return nil, "", errors.New("no servers given")
	}
	if strings.Contains(text, "@") { // not shown: it may be a password
		return nil, "", errors.New("a server contains an @: give credentials with WithAuth or WithSASL, and each server as host:port")
	}
	if scheme, _, isURL := strings.Cut(text, "://"); isURL {
		return nil, "", fmt.Errorf("%q is a URL: give each server as host:port, without %s://", text, scheme)
	}
	if at := strings.IndexByte(text, '/'); at >= 0 {
		if text, chroot, err = splitChroot(text, at); err != nil {
			return nil, "", err
		}
	}
	servers = strings.Split(text, ",")
	for i, server := range servers {
		if servers[i] = strings.TrimSpace(server); servers[i] == "" {
			return nil, "", fmt.Errorf("server %d of %d is empty", i+1, len(servers))
		}
	}
	for _, server := range zk.FormatServers(servers) {
		if err := checkServer(server); err != nil {
			return nil, "", err
		}
	}
	return servers, chroot, nil
}

// splitChroot splits a connect string at its first slash.
func splitChroot(text string, at int) (servers, chroot string, err error) {
	servers, chroot = text[:at], strings.TrimRight(text[at:], " \t\r\n")
	if strings.Contains(chroot, ",") {
		return "", "", fmt.Errorf("the path in %q does not follow the last server: give one chroot for all servers, at the end, as in \"host1,host2/app\"; or use WithNamespace", text)
	}
	if err := zkutil.ValidatePath(chroot); err != nil {
		return "", "", fmt.Errorf("chroot: %w", err)
	}
	return servers, strings.TrimSuffix(chroot, "/"), nil
}

// checkServer returns an error unless server is host:port.
func checkServer(server string) error {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return fmt.Errorf("server %q: %w", server, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("server %q: %q is not a port", server, port)
	}
	if host == "" || strings.ContainsAny(host, " \t\r\n") {
		return fmt.Errorf("server %q is not host:port", server)
	}
	return nil
}
