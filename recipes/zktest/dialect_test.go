package zktest_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// dialects are all dialects.
var dialects = []zktest.Dialect{
	zktest.ZooKeeper34, zktest.ZooKeeper35, zktest.ZooKeeper36, zktest.ZooKeeper37, zktest.ZooKeeper38,
	zktest.ZooKeeper39, zktest.ZooKeeper310, zktest.ClickHouseKeeper,
}

func TestUnknownDialectIsRefused(t *testing.T) {
	for _, d := range []zktest.Dialect{-1, zktest.Zetcd + 1} {
		_, err := zktest.Start(zktest.WithDialect(d))
		require.ErrorContains(t, err, "no dialect")
	}
	require.Equal(t, "ZooKeeper 3.4", zktest.ZooKeeper34.String())
	require.Equal(t, "ClickHouse Keeper", zktest.ClickHouseKeeper.String())
	require.Contains(t, zktest.ZooKeeper35.Lacks(), zktest.OpMultiRead)
}

// Each dialect supports the operations of its release, and treats all others in its own way.
func TestOperationsOfDialects(t *testing.T) {
	create2 := create("/b", 0)
	create2.op = proto.OpCreate2
	operations := map[zktest.Op]request{
		zktest.OpCreate2: create2, zktest.OpCreateContainer: container("/c"), zktest.OpMultiRead: reads(part(get("/a", false))),
		zktest.OpAddWatch:      {proto.OpAddWatch, proto.NewEncoder().String("/a").Int32(proto.WatchPersistent).Body()},
		zktest.OpRemoveWatches: {proto.OpRemoveWatches, proto.NewEncoder().String("/a").Int32(proto.WatchersOfData).Body()},
		zktest.OpSetWatches:    {proto.OpSetWatches, proto.NewEncoder().Int64(0).Int32(0).Int32(0).Int32(0).Body()},
	}
	known := map[zktest.Dialect][]zktest.Op{
		zktest.ZooKeeper34:      {zktest.OpSetWatches},
		zktest.ZooKeeper35:      {zktest.OpSetWatches, zktest.OpCreate2, zktest.OpCreateContainer, zktest.OpRemoveWatches},
		zktest.ClickHouseKeeper: {zktest.OpMultiRead},
	}
	for _, d := range dialects {
		for op, r := range operations {
			t.Run(d.String()+"/"+op.String(), func(t *testing.T) {
				bubble(t, func(w world) {
					srv := zktest.NewServer(w, zktest.WithDialect(d))
					c := w.session(srv)
					c.did(create("/a", 0))
					c.did(get("/a", true))
					c.send(r)
					ops, isListed := known[d]
					isKnown := !isListed
					for _, other := range ops {
						isKnown = isKnown || other == op
					}
					switch {
					case isKnown:
						require.EqualValues(w, proto.CodeOK, c.read().code)
					case d == zktest.ClickHouseKeeper:
						c.end()
					default:
						require.EqualValues(w, proto.CodeUnimplemented, c.read().code)
						c.end()
					}
				})
			})
		}
	}
}

// A ClickHouse Keeper never resumes a session. The old session ends with its timeout.
func TestClickHouseKeeperResumesNoSession(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithDialect(zktest.ClickHouseKeeper))
		c := w.session(srv)
		require.Equal(w, make([]byte, proto.PasswordLength), c.password)
		c.did(create("/e", zk.FlagEphemeral))
		require.NoError(w, c.conn.Close())
		start := time.Now()
		next := c.again(w.dial(srv))
		require.NotZero(w, next.id)
		require.NotEqual(w, c.id, next.id)
		_, isAlive := srv.Session(c.id)
		require.True(w, isAlive)
		pass(9 * time.Second)
		require.Contains(w, srv.Children("/"), "e")
		until(start.Add(10*time.Second + 50*time.Millisecond))
		require.NotContains(w, srv.Children("/"), "e")
	})
}

// The handshake of a ClickHouse Keeper does not compare histories.
func TestClickHouseKeeperAcceptsClientsFromTheFuture(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithDialect(zktest.ClickHouseKeeper))
		c := w.session(srv)
		c.seen = 1 << 60
		require.NotZero(w, c.again(w.dial(srv)).id)
	})
}

// On a ClickHouse Keeper, a ping is a transaction and extends the session, and a read does neither.
func TestClickHouseKeeperCommitsPings(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithDialect(zktest.ClickHouseKeeper))
		c := w.session(srv)
		before := c.did(exists("/zookeeper", false)).zxid
		require.Equal(w, before+1, c.did(ping()).zxid)
		expiry := func() time.Time {
			session, _ := srv.Session(c.id)
			return session.Expiry
		}
		first := expiry()
		pass(3 * time.Second)
		require.Equal(w, before+1, c.did(exists("/zookeeper", false)).zxid)
		require.Equal(w, first, expiry())
		for i, r := range []request{ping(), syncing("/"), multi(), set("/nowhere", "")} {
			pass(3 * time.Second)
			c.call(r)
			require.Equal(w, first.Add(time.Duration(i+2)*3*time.Second), expiry(), "request %d", i)
		}
	})
}

// Without its quorum a ClickHouse Keeper answers no ping.
func TestIsolatedClickHouseKeeperAnswersNoPing(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2), zktest.WithDialect(zktest.ClickHouseKeeper))
		c := w.session(srv)
		srv.Isolate(srv.Addr())
		c.did(exists("/zookeeper", false))
		c.send(ping(), exists("/zookeeper", false))
		c.hearsNothing()
	})
}

// Servers without the fix of CVE-2024-23944 notify a client of changes of a znode that the client may not read.
func TestNotificationsOfUnreadableZnodes(t *testing.T) {
	hides := map[zktest.Dialect]bool{zktest.ZooKeeper38: true}
	for _, d := range dialects {
		bubble(t, func(w world) {
			srv := zktest.NewServer(w, zktest.WithDialect(d))
			owner, other := w.session(srv), w.session(srv)
			owner.did(auth("digest", "a:b"))
			secret := request{proto.OpCreate, proto.NewEncoder().String("/s").Buffer(nil).ACL(zk.AuthACL(zk.PermAll)).Int32(0).Body()}
			owner.did(secret)
			if d == zktest.ZooKeeper39 || d == zktest.ZooKeeper310 {
				require.EqualValues(w, proto.CodeNoAuth, other.call(exists("/s", true)).code)
				return
			}
			other.did(exists("/s", true))
			owner.did(remove("/s"))
			pass(time.Second)
			if hides[d] {
				other.hearsNothing()
				return
			}
			kind, path := other.event()
			require.Equal(w, "Deleted /s", kind+" "+path)
		})
	}
}

// Only ZooKeeper 3.10 reaps containers that never had a child.
func TestReapingOfUnusedContainers(t *testing.T) {
	for _, d := range dialects[1:7] {
		bubble(t, func(w world) {
			srv := zktest.NewServer(w, zktest.WithDialect(d))
			w.session(srv).did(container("/c"))
			pass(5 * time.Minute)
			require.Contains(w, srv.Children("/"), "c", d)
			pass(2 * time.Minute)
			require.Equal(w, d == zktest.ZooKeeper310, len(srv.Children("/")) == 1, d)
		})
	}
}
