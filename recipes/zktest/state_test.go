package zktest_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestSessionsReportServerState(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		a, b := w.session(srv), w.session(srv, srv.Addrs()[1])
		b.did(create("/z", 1))
		b.did(create("/a", 1))
		b.did(create("/p", 0))
		b.did(list("/", true))
		b.did(get("/a", true))
		b.did(exists("/a", true)) // the same watch
		want := zktest.Session{
			ID: b.id, Timeout: 10 * time.Second, Expiry: began.Add(10050 * time.Millisecond).Local(),
			Server: srv.Addrs()[1], Ephemerals: []string{"/z", "/a"}, Watches: 2,
		}
		got, alive := srv.Session(b.id)
		require.True(w, alive)
		require.Equal(w, want, got)
		require.Equal(w, b.id, srv.Sessions()[1].ID)
		require.Equal(w, a.id, srv.Sessions()[0].ID)
		require.Equal(w, 2, srv.Connections())

		require.NoError(w, b.conn.Close())
		testkit.Eventually(w, func() bool { return srv.Connections() == 1 }, "the connection's end")
		got, alive = srv.Session(b.id)
		require.True(w, alive)
		require.Empty(w, got.Server)
		require.Zero(w, got.Watches, "they go with the connection")
		require.Len(w, got.Ephemerals, 2)
		_, alive = srv.Session(4711)
		require.False(w, alive)
	})
}

func TestCloseOfASessionTakesItsZnodes(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c, other := w.session(srv), w.session(srv)
		c.did(create("/a", 1))
		other.did(list("/", true))
		c.did(closing())
		c.end()
		kind, path := other.event()
		require.Equal(w, "ChildrenChanged /", kind+" "+path)
		require.Empty(w, srv.Children("/a"))
		require.Len(w, srv.Sessions(), 1)
		require.Zero(w, c.again(w.dial(srv)).id)
	})
}

func TestGet(t *testing.T) {
	srv := zktest.NewServer(t)
	c := tcp(t).session(srv)
	c.did(create("/a", 1))
	c.did(set("/a", "more"))
	data, stat, ok := srv.Get("/a")
	require.True(t, ok)
	require.Equal(t, "more", string(data))
	answer := c.did(get("/a", false))
	answer.body.Buffer()
	require.Equal(t, answer.body.Stat(), stat)
	require.Equal(t, c.id, stat.EphemeralOwner)
	data[0] = 'x'
	data, _, _ = srv.Get("/a")
	require.Equal(t, "more", string(data), "a copy is handed out")
	_, stat, ok = srv.Get("/none")
	require.False(t, ok)
	require.Zero(t, stat)
	require.Nil(t, srv.Children("/none"))
	require.Empty(t, srv.Children("/a"))
}

func TestPutBehindTheClientsBacks(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		c.did(list("/", true))
		c.call(exists("/a/b/c", true))
		data := []byte("x")
		srv.Put("/a/b/c", data)
		data[0] = 'y'
		for _, want := range []string{"ChildrenChanged /", "Created /a/b/c"} {
			kind, path := c.event()
			require.Equal(w, want, kind+" "+path)
		}
		require.Equal(w, []string{"b"}, srv.Children("/a"))
		require.Equal(w, "x", string(c.did(get("/a/b/c", true)).body.Buffer()))
		srv.Put("/a/b/c", nil)
		kind, path := c.event()
		require.Equal(w, "DataChanged /a/b/c", kind+" "+path)
		got, stat, _ := srv.Get("/a/b/c")
		require.Nil(w, got)
		require.EqualValues(w, 1, stat.Version)
		srv.Put("/", []byte("root"))
		require.Equal(w, "root", string(c.did(get("/", false)).body.Buffer()))
		c.did(remove("/a/b/c"))
	})
}

func TestPutPanicsWhereTheServerWouldRefuse(t *testing.T) {
	srv := zktest.NewServer(t)
	c := tcp(t).session(srv)
	c.did(create("/e", 1))
	for _, path := range []string{"", "a", "/a/", "/a//b", "/a/./b", "/\x00", "/e/a", "/e/a/b"} {
		require.Panics(t, func() { srv.Put(path, nil) }, path)
	}
	require.Equal(t, []string{"e", "zookeeper"}, srv.Children("/"))
	srv.Put("/e", []byte("fine"))
	srv.ExpireAll()
	require.Equal(t, []string{"zookeeper"}, srv.Children("/"))
}

func TestDeleteBehindTheClientsBacks(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		for _, path := range []string{"/a", "/a/b", "/a/b/c", "/ab"} {
			c.did(create(path, 0))
		}
		c.did(create("/a/e", 1))
		c.did(get("/a/b", true))
		c.did(list("/", true))
		srv.Delete("/a")
		for _, want := range []string{"Deleted /a/b", "ChildrenChanged /"} {
			kind, path := c.event()
			require.Equal(w, want, kind+" "+path)
		}
		require.Equal(w, []string{"ab", "zookeeper"}, srv.Children("/"))
		n, _ := srv.Session(c.id)
		require.Empty(w, n.Ephemerals)
		before := c.did(ping()).zxid
		for _, path := range []string{"/a", "/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"} {
			srv.Delete(path)
		}
		require.Equal(w, before, c.did(ping()).zxid)
		require.Equal(w, []string{"config", "quota"}, srv.Children("/zookeeper"))
		c.did(closing())
	})
}

func TestSetSequence(t *testing.T) {
	srv := zktest.NewServer(t)
	conn := tcp(t).conn(srv)
	sequential := func() string {
		path, err := conn.Create("/q/n-", nil, zk.FlagSequence, all)
		require.NoError(t, err)
		return path
	}
	srv.Put("/q", nil)
	require.Equal(t, "/q/n-0000000000", sequential())
	srv.SetSequence("/q", 2147483646)
	require.Equal(t, "/q/n-2147483646", sequential())
	require.Equal(t, "/q/n-2147483647", sequential())
	_, err := conn.Create("/q/n-", nil, zk.FlagSequence, all)
	require.ErrorIs(t, err, zk.ErrNodeExists, "the counter stands still")
	require.PanicsWithValue(t, `zktest: no znode "/none"`, func() { srv.SetSequence("/none", 1) })
	require.NoError(t, conn.Delete("/q/n-0000000000", -1))
}

func TestReap(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		for _, path := range []string{"/used", "/used/child", "/new", "/full"} {
			c.did(container(path))
		}
		c.did(create("/full/x", 0))
		c.did(create("/used/child/x", 0))
		c.did(remove("/used/child/x"))
		c.did(create("/plain", 0))
		c.did(create("/plain/x", 0))
		c.did(remove("/plain/x"))
		c.did(exists("/used/child", true))
		srv.Reap()
		kind, path := c.event()
		require.Equal(w, "Deleted /used/child", kind+" "+path)
		require.Equal(w, []string{"full", "new", "plain", "used", "zookeeper"}, srv.Children("/"), "one storey at a time")
		srv.Reap()
		require.Equal(w, []string{"full", "new", "plain", "zookeeper"}, srv.Children("/"))
		c.did(remove("/full/x"))
		srv.Stop()
		srv.Reap()
		require.Equal(w, []string{"full", "new", "plain", "zookeeper"}, srv.Children("/"), "there is nobody to do it")
	})
}

func TestReapInterval(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithReapInterval(10*time.Second), zktest.WithTTLNodes())
		c := session(w, w.dial(srv), time.Hour)
		c.did(container("/c"))
		c.did(create("/c/x", 0))
		c.did(remove("/c/x"))
		c.did(ttl("/short", 5*time.Second))
		c.did(ttl("/exact", 10*time.Second))
		c.did(ttl("/parent", 5*time.Second))
		c.did(create("/parent/x", 0))
		c.did(ttl("/touched", 15*time.Second))
		until(began.Add(10*time.Second - 1))
		require.Len(w, srv.Children("/"), 6)
		until(began.Add(10 * time.Second))
		require.Equal(w, []string{"exact", "parent", "touched", "zookeeper"}, srv.Children("/"))
		c.did(set("/touched", "again"))
		c.did(remove("/parent/x"))
		until(began.Add(20 * time.Second))
		require.Equal(w, []string{"touched", "zookeeper"}, srv.Children("/"))
		until(began.Add(30 * time.Second))
		require.Equal(w, []string{"zookeeper"}, srv.Children("/"))
		require.EqualValues(w, proto.CodeNoNode, c.call(get("/touched", false)).code)
	})
}

func TestReapIntervalIsAMinute(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithTTLNodes())
		c := session(w, w.dial(srv), time.Hour)
		c.did(ttl("/short", time.Millisecond))
		until(began.Add(time.Minute - 1))
		require.Len(w, srv.Children("/"), 2)
		until(began.Add(time.Minute))
		require.Len(w, srv.Children("/"), 1)
	})
}
