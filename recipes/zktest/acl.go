package zktest

import (
	"crypto/sha1" //nolint:gosec // what the digest scheme is made of
	"encoding/base64"
	"net/netip"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// identity is one of the names under which a connection is known.
type identity struct{ scheme, id string }

// identify returns the identity that credentials prove; not ok: the scheme is unknown,
// or they are none.
func identify(scheme string, credentials []byte, address string) (identity, bool) {
	switch scheme {
	case "digest":
		user, _, _ := strings.Cut(string(credentials), ":")
		sum := sha1.Sum(credentials) //nolint:gosec // as above
		return identity{scheme, user + ":" + base64.StdEncoding.EncodeToString(sum[:])}, true
	case "ip":
		return identity{scheme, address}, true
	default:
		return identity{}, false
	}
}

// permits decides as ZooKeeperServer.checkACL does. No list means anybody.
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

// resolve checks a list that a client sets, and replaces the scheme "auth" by what the
// client is known as.
func resolve(acl []zk.ACL, who []identity) ([]zk.ACL, int32) {
	var resolved []zk.ACL
	for i, entry := range acl {
		switch {
		case slices.Contains(acl[:i], entry):
			continue
		case entry.Scheme == "auth":
			before := len(resolved)
			for _, one := range who {
				if one.scheme == "digest" { // an address proves nothing
					resolved = append(resolved, zk.ACL{Perms: entry.Perms, Scheme: one.scheme, ID: one.id})
				}
			}
			if len(resolved) == before {
				return nil, proto.CodeInvalidACL
			}
		case entry.Scheme == "world" && entry.ID == "anyone",
			entry.Scheme == "digest" && strings.Count(strings.TrimRight(entry.ID, ":"), ":") == 1,
			entry.Scheme == "ip" && isNetwork(entry.ID):
			resolved = append(resolved, entry)
		default:
			return nil, proto.CodeInvalidACL
		}
	}
	if len(resolved) == 0 {
		return nil, proto.CodeInvalidACL
	}
	return resolved, proto.CodeOK
}

// masked hides the digests of a list from those who may not change it.
func masked(acl []zk.ACL) []zk.ACL {
	acl = slices.Clone(acl)
	for i, entry := range acl {
		if user, _, ok := strings.Cut(entry.ID, ":"); ok && entry.Scheme == "digest" {
			acl[i].ID = user + ":x"
		}
	}
	return acl
}

func network(id string) (netip.Prefix, bool) {
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
