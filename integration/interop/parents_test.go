package interop_test

import (
	"path"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// others returns all languages, the given one first.
func others(first language) []language {
	all := []language{first}
	for _, l := range languages {
		if l.name != first.name {
			all = append(all, l)
		}
	}
	return all
}

// The first client creates the parents, and all others work below them. Go and Curator create containers, which the server
// removes without users; then the same repeats.
func TestParents(t *testing.T) {
	t.Parallel()
	for _, maker := range languages {
		t.Run("made by "+maker.name, func(t *testing.T) {
			t.Parallel()
			parent := testkit.Path(t)
			dir := parent + "/locks"
			var sessions []session
			for _, l := range others(maker) {
				sessions = append(sessions, l.open(t, options{}))
			}
			containers := maker.name == golang.name || maker.name == javaLang.name
			for range 2 {
				var members []contender
				for _, s := range sessions {
					members = append(members, s.contender(t, dir, "id"))
				}
				chain(t, dir, members, func([]string) {})
				if containers {
					reaped(t, parent)
				}
			}
		})
	}
}

// A namespace is a prefix of all paths, also if another language created it. zk.Lock has none.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	for _, maker := range languages {
		t.Run("made by "+maker.name, func(t *testing.T) {
			t.Parallel()
			o := options{namespace: unique("namespace")}
			const dir = "/locks/a"
			var members []contender
			for _, l := range others(maker) {
				members = append(members, l.open(t, o).contender(t, dir, "id"))
			}
			full := "/" + o.namespace + dir
			chain(t, full, members, func(nodes []string) {
				for i, l := range others(maker) {
					ours, ok := members[i].(*goContender)
					if !ok {
						continue
					}
					require.Equal(t, nodes[i], participants(t, ours.mutex, len(nodes))[i].Path, l.name)
				}
			})
		})
	}
}

// Clients that know the password can use znodes that another side protected, and no other clients can.
func TestACLs(t *testing.T) {
	t.Parallel()
	o := options{auth: secret}
	for _, maker := range languages {
		t.Run("made by "+maker.name, func(t *testing.T) {
			t.Parallel()
			dir := testkit.Path(t) + "/locks"
			var members []contender
			for _, l := range others(maker) {
				members = append(members, l.open(t, o).contender(t, dir, "id"))
			}
			chain(t, dir, members, func(nodes []string) {
				for _, node := range append(nodes, dir, path.Dir(dir)) {
					acl, _, err := theWorld(t).observer.GetACL(node)
					require.NoError(t, err)
					require.Equal(t, digest(secret), acl, node)
				}
				for _, l := range languages {
					stranger := l.open(t, options{}).contender(t, dir, "id")
					err := stranger.lock()
					if l.name == golang.name || l.name == zkLock.name {
						require.ErrorIs(t, err, zk.ErrNoAuth, l.name)
					} else {
						require.ErrorContains(t, err, "NoAuth", l.name)
					}
				}
			})
		})
	}
}
