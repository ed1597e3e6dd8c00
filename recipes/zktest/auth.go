package zktest

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // the digest scheme uses SHA-1
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/digestmd5"
	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// identity is a name under which a connection is known.
type identity struct{ scheme, id string }

// identify returns the identity that credentials prove, and false for an unknown scheme or a digest of null.
func identify(scheme string, credentials []byte, address string) (identity, bool) {
	switch {
	case scheme == "digest" && credentials != nil:
		user, _, _ := strings.Cut(string(credentials), ":")
		sum := sha1.Sum(credentials) //nolint:gosec // as above
		return identity{scheme, user + ":" + base64.StdEncoding.EncodeToString(sum[:])}, true
	case scheme == "ip":
		return identity{scheme, address}, true
	default:
		return identity{}, false
	}
}

func (l *line) authenticate(d *proto.Decoder) (code int32) {
	d.Int32() // unused
	scheme, credentials := d.Text(), d.Buffer()
	if d.Err() != nil {
		return proto.CodeMarshallingError
	}
	address := l.who[0].id
	one, ok := identify(scheme, credentials, address)
	if !ok {
		return proto.CodeAuthFailed
	}
	if !slices.Contains(l.who, one) {
		l.who = append(l.who, one)
	}
	return proto.CodeOK
}

// whoAmI lists the identities of the connection, without secrets: of digests the user, of others the id.
func (l *line) whoAmI() *proto.Encoder {
	body := proto.NewEncoder().Int32(int32(len(l.who))) //nolint:gosec // few
	for _, one := range l.who {
		user := one.id
		if one.scheme == "digest" {
			user, _, _ = strings.Cut(user, ":")
		}
		body.String(one.scheme).String(user)
	}
	return body
}

// WithSASL lets clients log in over SASL with DIGEST-MD5, as a real server does whose JAAS configuration lists the users in its
// section Server. passwords has the password of each user; [Server.SetPassword] changes it. Without WithSASL, the
// server answers a login with a null token, as a real server without SASL does. Kerberos is not served.
func WithSASL(passwords map[string]string) Option {
	return func(c *config) error {
		if len(passwords) == 0 {
			return fmt.Errorf("zktest: SASL without users")
		}
		c.passwords = maps.Clone(passwords)
		return nil
	}
}

// WithSASLRequired makes the server refuse every request before a login, and end the connection, as a real server does with
// sessionRequireClientSASLAuth=true. It needs [WithSASL].
func WithSASLRequired() Option {
	return func(c *config) error {
		c.saslRequired = true
		return nil
	}
}

// checkSASL returns an error if the options contradict each other.
func (c *config) checkSASL() error {
	if c.saslRequired && c.passwords == nil {
		return fmt.Errorf("zktest: WithSASLRequired needs the users of WithSASL")
	}
	return nil
}

// SetPassword sets the password of a user for later logins; "" removes the user. Connections that are logged in stay so.
func (s *Server) SetPassword(user, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.passwords == nil {
		panic("zktest: SetPassword on a server without WithSASL")
	}
	if password == "" {
		delete(s.cfg.passwords, user)
		return
	}
	s.cfg.passwords[user] = password
}

// mustLogIn reports whether a request is refused, because it precedes a login. Called under the lock.
func (l *line) mustLogIn(op Op) bool {
	isLoggedIn := slices.ContainsFunc(l.who, func(one identity) bool { return one.scheme == "sasl" })
	return l.srv.cfg.saslRequired && !isLoggedIn && op != OpSASL && op != OpAuth
}

// refuseWithoutLogin answers a request that precedes a login. Called under the lock.
func refuseWithoutLogin(xid int32) (answer []byte, last bool) {
	return header(xid, 0, proto.CodeLoginRequired).Frame(), true
}

// logIn answers a message of a login, as ZooKeeperServer.processSasl does. Called under the lock.
func (l *line) logIn(xid int32, d *proto.Decoder) (answer []byte, last bool) {
	message := d.Buffer()
	if d.Err() != nil {
		return nil, true
	}
	token := func(token []byte) ([]byte, bool) { return header(xid, 0, proto.CodeOK).Buffer(token).Frame(), false }
	users := l.srv.cfg.passwords
	switch {
	case users == nil:
		return token(nil)
	case l.login == nil: // with any message
		l.login = digestmd5.NewServer()
		return token(l.login.Challenge())
	default:
		user, proof, err := l.login.Check(message, func(user string) (string, bool) { password, ok := users[user]; return password, ok })
		if err == nil {
			l.login = nil
			l.who = append(l.who, identity{"sasl", user})
			return token(proof)
		}
	}
	code := int32(proto.CodeAuthFailed)
	if l.srv.cfg.saslRequired {
		code = proto.CodeLoginRequired
	}
	return header(xid, 0, code).Buffer(nil).Frame(), true
}

// secured is the server's end of a TLS connection. Unlike Close of package tls, its Close
// never waits for the client.
type secured struct {
	*tls.Conn
	below net.Conn
}

// secure wraps a connection in TLS if the server is configured for TLS.
func (c *config) secure(conn net.Conn) net.Conn {
	if c.tls == nil {
		return conn
	}
	return secured{tls.Server(conn, c.tls), conn}
}

// Close ends the connection without a close_notify.
func (c secured) Close() error { return c.below.Close() }

// certified returns the identity that a client proved with a certificate. It is the subject of the certificate, as in
// X509AuthenticationProvider.
func certified(conn net.Conn) []identity {
	c, ok := conn.(secured)
	if !ok {
		return nil
	}
	shown := c.ConnectionState().PeerCertificates
	if len(shown) == 0 {
		return nil
	}
	return []identity{{"x509", shown[0].Subject.String()}}
}

// permits decides as ZooKeeperServer.checkACL does. An empty list permits all users.
func permits(acl []zk.ACL, perm int32, who []identity) bool {
	return len(acl) == 0 || slices.ContainsFunc(acl, func(entry zk.ACL) bool {
		if entry.Perms&perm == 0 {
			return false
		}
		if entry.Scheme == "world" && entry.ID == "anyone" {
			return true
		}
		return slices.ContainsFunc(who, func(one identity) bool {
			switch {
			case entry.Scheme != one.scheme:
				return false
			case one.scheme == "ip":
				return inNetwork(one.id, entry.ID)
			default:
				return entry.ID == one.id
			}
		})
	})
}

// resolve checks an ACL that a client sets, and replaces the scheme "auth" by the
// client's identities. A null id is a MarshallingError where the real server looks at the
// id.
func resolve(acl []zk.ACL, who []identity, hasSASL, hasTLS bool) ([]zk.ACL, int32) {
	if comparesNull(acl) {
		return nil, proto.CodeMarshallingError
	}
	var resolved []zk.ACL
	for i, entry := range acl {
		isValid := idCheck(entry.Scheme, hasSASL, hasTLS)
		switch {
		case slices.Contains(acl[:i], entry):
			continue
		case entry.Scheme == "auth":
			before := len(resolved)
			for _, one := range who {
				if one.scheme != "ip" { // an address proves no identity
					resolved = append(resolved, zk.ACL{Perms: entry.Perms, Scheme: one.scheme, ID: one.id})
				}
			}
			if len(resolved) == before {
				return nil, proto.CodeInvalidACL
			}
		case isValid != nil && entry.ID == proto.Null:
			return nil, proto.CodeMarshallingError
		case isValid == nil || !isValid(entry.ID):
			return nil, proto.CodeInvalidACL
		default:
			resolved = append(resolved, entry)
		}
	}
	if len(resolved) == 0 {
		return nil, proto.CodeInvalidACL
	}
	return resolved, proto.CodeOK
}

// idCheck returns the check of a scheme's ids, nil for an unknown scheme. Without a login
// over SASL a server does not know the scheme "sasl", and without TLS not "x509".
func idCheck(scheme string, hasSASL, hasTLS bool) func(id string) bool {
	switch {
	case scheme == "world":
		return func(id string) bool { return id == "anyone" }
	case scheme == "digest":
		return func(id string) bool { return strings.Count(strings.TrimRight(id, ":"), ":") == 1 }
	case scheme == "ip":
		return isNetwork
	case scheme == "sasl" && hasSASL:
		return func(id string) bool { return principal.MatchString(id) || !strings.Contains(id, "@") }
	case scheme == "x509" && hasTLS:
		return func(id string) bool { return id != "" }
	default:
		return nil
	}
}

// comparesNull reports whether a real server fails at a null string while it looks for
// equal entries: of two entries with the same permissions it compares the schemes, and
// then the ids.
func comparesNull(acl []zk.ACL) bool {
	for i, entry := range acl {
		isCompared := func(other zk.ACL) bool {
			return other.Perms == entry.Perms && (entry.Scheme == proto.Null || other.Scheme == entry.Scheme)
		}
		if (entry.Scheme == proto.Null || entry.ID == proto.Null) && slices.ContainsFunc(acl[:i], isCompared) {
			return true
		}
	}
	return false
}

// principal matches a name of Kerberos, as KerberosName does.
var principal = regexp.MustCompile(`^[^/@]*(/[^/@]*)?@[^/@]*$`)

// masked returns acl with the digests replaced, for clients without the admin permission.
func masked(acl []zk.ACL) []zk.ACL {
	acl = slices.Clone(acl)
	for i, entry := range acl {
		if user, _, ok := strings.Cut(entry.ID, ":"); ok && entry.Scheme == "digest" {
			acl[i].ID = user + ":x"
		}
	}
	return acl
}

// network parses an address or a network as a server does, which takes a length with leading zeros.
func network(id string) (netip.Prefix, bool) {
	if address, length, ok := strings.Cut(id, "/"); ok {
		if digits := strings.TrimLeft(length, "0"); digits != length && strings.Trim(length, "0123456789") == "" {
			id = address + "/" + cmp.Or(digits, "0")
		}
	}
	if prefix, err := netip.ParsePrefix(id); err == nil {
		return prefix, true
	}
	address, err := netip.ParseAddr(id)
	if err != nil || !address.Is4() {
		return netip.Prefix{}, false
	}
	prefix, err := address.Prefix(address.BitLen())
	return prefix, err == nil
}

func isNetwork(id string) bool {
	_, ok := network(id)
	return ok
}

func inNetwork(address, id string) bool {
	prefix, ok := network(id)
	a, err := netip.ParseAddr(address)
	return ok && err == nil && prefix.Contains(a)
}
