package zktest_test

import (
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Networks are those that a real server accepts: its IPAuthenticationProvider reads the length with Integer.parseInt.
func TestNetworksInACLs(t *testing.T) {
	c := tcp(t).session(zktest.NewServer(t))
	for id, want := range map[string]int32{
		"127.0.0.1": proto.CodeOK, "127.0.0.0/8": proto.CodeOK, "127.0.0.0/08": proto.CodeOK, "127.0.0.0/008": proto.CodeOK,
		"127.0.0.0/00": proto.CodeOK, "127.0.0.0/33": proto.CodeInvalidACL, "127.0.0.0/": proto.CodeInvalidACL, "127.0.0.0/x8": proto.CodeInvalidACL,
	} {
		path := "/" + strings.ReplaceAll(id, "/", "-")
		acl := []zk.ACL{{Perms: zk.PermAll, Scheme: "ip", ID: id}}
		r := c.call(request{proto.OpCreate, proto.NewEncoder().String(path).Buffer(nil).ACL(acl).Int32(0).Body()})
		require.Equal(t, want, r.code, id)
		if want == proto.CodeOK {
			c.did(get(path, false))
		}
	}
}

// Since 3.7, a client can ask for its own identities. The answer has no secrets.
func TestWhoAmI(t *testing.T) {
	c := tcp(t).session(zktest.NewServer(t))
	whoAmI := func() (names []string) {
		d := c.did(request{proto.OpWhoAmI, nil}).body
		for range d.Int32() {
			names = append(names, d.String()+":"+d.String())
		}
		require.NoError(t, d.Err())
		require.Zero(t, d.Len())
		return names
	}
	require.Equal(t, []string{"ip:127.0.0.1"}, whoAmI())
	c.did(auth("digest", "ann:secret"))
	require.Equal(t, []string{"ip:127.0.0.1", "digest:ann"}, whoAmI())
}
