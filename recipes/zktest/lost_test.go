package zktest_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestDropEvent(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c, other := w.session(srv), w.session(srv)
		srv.Put("/a", nil)
		watch := func() {
			for _, s := range []*raw{c, other} {
				s.did(get("/a", true))
			}
		}
		watch()
		remove := srv.DropEvent(1, c.id)
		srv.Put("/a", nil)
		kind, path := other.event()
		require.Equal(w, "DataChanged /a", kind+" "+path)
		c.did(ping()) // this answer replaced the event
		watch()
		srv.Put("/a", nil)
		c.event() // one event was to be lost
		other.event()
		remove()

		remove = srv.DropEvent(math.MaxInt)
		for range 3 {
			watch()
			srv.Put("/a", nil)
		}
		remove()
		watch()
		remove()
		srv.Put("/a", nil)
		c.event()
		other.event()
		require.Panics(w, func() { srv.DropEvent(0) })
	})
}

func TestDropAnswer(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		remove := srv.DropAnswer(zktest.OpCreate, 1, c.id)
		c.send(create("/a", 0), get("/a", false), create("/b", 0))
		require.EqualValues(w, 2, c.read().xid, "the connection goes on")
		require.EqualValues(w, 3, c.read().xid)
		require.Equal(w, []string{"a", "b", "zookeeper"}, srv.Children("/"), "executed")
		remove()

		srv.DropAnswer(zktest.OpConnect, 1)
		next := newRaw(w, w.dial(srv))
		next.hail(time.Second)
		next.hearsNothing()
	})
}

func TestPartitionFromOneServer(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		first, second := srv.Addrs()[0], srv.Addrs()[1]
		c, other := w.session(srv), w.session(srv)
		srv.PartitionFrom(first, c.id)
		c.send(create("/a", 0))
		c.hearsNothing()
		other.did(ping())
		require.Equal(w, []string{"zookeeper"}, srv.Children("/"))
		next := c.again(w.dial(srv, second))
		require.Equal(w, c.id, next.id)
		next.did(ping())
		again := newRaw(w, w.dial(srv, first))
		again.id, again.password = c.id, c.password
		again.hail(time.Second)
		again.hearsNothing()
		srv.Heal(second) // ends it, like every Partition
		again.welcome()
		require.Equal(w, c.id, again.id)
	})
}

func TestPartitionOfAllClientsFromOneServer(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		srv.PartitionFrom(srv.Addr())
		_, err := srv.Dialer()("tcp", srv.Addr(), time.Second)
		require.ErrorContains(w, err, "timeout")
		w.session(srv, srv.Addrs()[1]).did(ping())
		require.Panics(w, func() { srv.PartitionFrom("nobody:1") })
		srv.HealSessions()
		w.session(srv)
	})
}

func TestHealSessions(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		a, b := w.session(srv), w.session(srv)
		srv.Partition(a.id, b.id)
		srv.PartitionFrom(srv.Addr(), a.id)
		srv.Freeze(srv.Addrs()[1])
		a.send(create("/a", 0))
		b.send(create("/b", 0))
		a.hearsNothing()
		srv.HealSessions(a.id)
		require.EqualValues(w, proto.CodeOK, a.read().code)
		b.hearsNothing()
		require.Equal(w, []string{"a", "zookeeper"}, srv.Children("/"))
		srv.HealSessions()
		require.EqualValues(w, proto.CodeOK, b.read().code)
		frozen := newRaw(w, w.dial(srv, srv.Addrs()[1]))
		frozen.hail(time.Second)
		frozen.hearsNothing()
		srv.Partition()
		require.Panics(w, func() { srv.HealSessions(a.id) })
	})
}

func TestKeepShowing(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		stale, fresh := w.session(srv), w.session(srv, srv.Addrs()[1])
		fresh.did(create("/d", 0))
		fresh.did(create("/d/a", 0))
		fresh.did(create("/d/b", 0))
		srv.KeepShowing("/d/a", srv.Addr())
		for _, c := range []*raw{stale, fresh} {
			c.did(get("/d/a", true))
			c.did(list("/d", true))
		}
		fresh.send(remove("/d/a"))
		for _, want := range []string{"Deleted /d/a", "ChildrenChanged /d"} {
			kind, path := fresh.event()
			require.Equal(w, want, kind+" "+path)
		}
		fresh.read()
		require.Equal(w, "x", string(stale.did(get("/d/a", true)).body.Buffer()))
		require.ElementsMatch(w, []string{"a", "b"}, stale.did(list("/d", true)).body.Strings())
		require.Equal(w, []string{"b"}, fresh.did(list("/d", false)).body.Strings())
		require.EqualValues(w, proto.CodeNoNode, fresh.call(get("/d/a", false)).code)
		require.EqualValues(w, proto.CodeNoNode, stale.call(remove("/d/a")).code, "the quorum knows better")
		stale.send(create("/d/c", 0))
		kind, path := stale.event()
		require.Equal(w, "ChildrenChanged /d", kind+" "+path, "all else is told")
		stale.read()
		require.ElementsMatch(w, []string{"a", "b", "c"}, stale.did(list("/d", false)).body.Strings())

		srv.Heal(srv.Addr())
		stale.end()
		stale = stale.again(w.dial(srv))
		require.EqualValues(w, proto.CodeNoNode, stale.call(get("/d/a", false)).code)
		require.Panics(w, func() { srv.KeepShowing("/d/a") })
	})
}
