package zktest_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestSeedAndDump(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		require.Empty(w, srv.Dump())
		crashed := srv.OpenSession(20 * time.Second)
		c := w.session(srv)
		const uuid = "0190a6f0-0000-7000-8000-00000000000"
		srv.Seed(
			zktest.Znode{Path: "/locks", Container: true},
			zktest.Znode{Path: "/locks/_c_" + uuid + "9-lock-0000000000", Data: []byte("10.0.0.7"), Session: crashed},
			zktest.Znode{Path: "/locks/_c_" + uuid + "1-lock-0000000001", Session: c.id},
			zktest.Znode{Path: "/locks/_c_config", TTL: time.Minute},
			zktest.Znode{Path: "/a/b", Data: []byte("\x00\n"), ACL: append(zk.WorldACL(zk.PermRead), zk.DigestACL(zk.PermAll, "u", "p")...)},
		)
		c.did(create("/locks/z", 3))
		const dump = `/a ""
/a/b "\x00\n" world:anyone:r digest:u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ=:rwcda
/locks "" container
/locks/_c_*-lock-0000000000 "10.0.0.7" ephemeral of session 1
/locks/_c_*-lock-0000000001 "" ephemeral of session 2
/locks/_c_config "" ttl 1m0s
/locks/z0000000003 "x" ephemeral of session 2
`
		require.Equal(w, dump, srv.Dump())
		require.EqualValues(w, proto.CodeNoAuth, c.call(set("/a/b", "y")).code)
		until(began.Add(20050 * time.Millisecond))
		require.Equal(w, []string{"_c_config"}, srv.Children("/locks"), "nobody keeps the sessions alive")
	})
}

func TestSeedNotifiesWatchers(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		c.call(exists("/a", true))
		srv.Seed(zktest.Znode{Path: "/a"})
		kind, path := c.event()
		require.Equal(w, "Created /a", kind+" "+path)
	})
}

func TestSeedRefusesWhatServersRefuse(t *testing.T) {
	srv := zktest.NewServer(t)
	ended := srv.OpenSession(time.Minute)
	owner := srv.OpenSession(time.Minute)
	srv.Expire(ended)
	srv.Seed(zktest.Znode{Path: "/a"}, zktest.Znode{Path: "/e", Session: owner})
	before := srv.Dump()
	for text, z := range map[string]zktest.Znode{
		`zktest: seed "/a": there is one already`:                         {Path: "/a"},
		`zktest: invalid path "b"`:                                        {Path: "b"},
		`zktest: "/e" is ephemeral and has no children`:                   {Path: "/e/x"},
		`zktest: seed "/b": session 1 has ended`:                          {Path: "/b", Session: ended},
		`zktest: session 0x1: this server has opened no such session`:     {Path: "/b", Session: 1},
		`zktest: seed "/b": a TTL of -1ns`:                                {Path: "/b", TTL: -1},
		`zktest: seed "/b": ephemeral, container or TTL, but one of them`: {Path: "/b", Container: true, TTL: time.Second},
		`zktest: seed "/b": no server takes the ACL [{31 auth }]`:         {Path: "/b", ACL: zk.AuthACL(zk.PermAll)},
	} {
		require.PanicsWithValue(t, text, func() { srv.Seed(z) })
	}
	require.Equal(t, before, srv.Dump())
	require.Panics(t, func() { srv.OpenSession(0) })
}
