package zktest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestIsolatedServerAnswersFromOldState(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		lonely, quorum := w.session(srv), w.session(srv, srv.Addrs()[1])
		quorum.did(create("/a", 0))
		before := lonely.did(ping()).zxid
		srv.Isolate(srv.Addr())
		quorum.did(set("/a", "new"))
		quorum.did(create("/b", 0))

		require.Equal(w, before, lonely.did(ping()).zxid)
		answer := lonely.did(get("/a", false))
		require.Equal(w, "x", string(answer.body.Buffer()))
		require.Equal(w, before, answer.zxid)
		require.Equal(w, before, lonely.did(syncing("/")).zxid)
		require.Equal(w, []string{"zookeeper", "a"}, lonely.did(list("/", false)).body.Strings())
		require.EqualValues(w, proto.CodeNoNode, lonely.call(exists("/b", false)).code)
		answer = lonely.did(reads(part(get("/b", false)), part(get("/a", false))))
		require.EqualValues(w, proto.OpError, answer.body.Int32())
		require.True(w, answer.body.Skip(5+4+9), "of two headers and a code")
		require.Equal(w, "x", string(answer.body.Buffer()))
		require.Equal(w, "new", string(quorum.did(get("/a", false)).body.Buffer()))
	})
}

func TestIsolatedServerNeverAnswersAWrite(t *testing.T) {
	writes := map[string]request{
		"create": create("/w", 0), "delete": remove("/a"), "set": set("/a", "new"), "container": container("/w"),
		"ttl": ttl("/w", time.Minute), "close": closing(),
		"multi": multi(), "check": check("/a"),
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(w world) {
				srv := zktest.NewServer(w, zktest.WithServers(2))
				c := w.session(srv)
				c.did(create("/a", 0))
				srv.Isolate(srv.Addr())
				c.send(ping(), write, ping(), get("/a", false))
				require.EqualValues(w, proto.XidPing, c.read().xid)
				c.hearsNothing() // nor any later request
				srv.Heal()
				c.end()
				data, stat, _ := srv.Get("/a")
				require.Equal(w, "x", string(data))
				require.Zero(w, stat.Version)
				require.Equal(w, []string{"a", "zookeeper"}, srv.Children("/"))
				require.Equal(w, c.id, c.again(w.dial(srv)).id)
			})
		})
	}
}

func TestIsolatedServerAnswersNoHandshake(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		srv.Isolate(srv.Addr())
		c := newRaw(w, w.dial(srv))
		c.hail(time.Second)
		c.hearsNothing()
		require.Empty(w, srv.Sessions())
		w.session(srv, srv.Addrs()[1])
		srv.Heal()
		c.end()
	})
}

func TestIsolatedServerFiresNoWatch(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		lonely, quorum := w.session(srv), w.session(srv, srv.Addrs()[1])
		for _, c := range []*raw{lonely, quorum} {
			c.call(exists("/a", true))
			c.did(list("/", true))
		}
		srv.Isolate(srv.Addr())
		lonely.call(exists("/b", true))
		srv.Put("/a", nil)
		srv.Put("/b", nil)
		for _, want := range []string{"Created /a", "ChildrenChanged /"} {
			kind, path := quorum.event()
			require.Equal(w, want, kind+" "+path)
		}
		lonely.hearsNothing()
		srv.Heal()
		lonely.end()
		// The client sets its watches again, and gets the event.
		next := lonely.again(w.dial(srv))
		next.send(request{proto.OpSetWatches, proto.NewEncoder().Int64(lonely.seen).
			Strings(nil).Strings([]string{"/a", "/b"}).Strings([]string{"/"}).Body()})
		for _, want := range []string{"Created /a", "Created /b", "ChildrenChanged /"} {
			kind, path := next.event()
			require.Equal(w, want, kind+" "+path)
		}
	})
}

func TestSessionOfAnIsolatedServerExpiresOnTheQuorum(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		c := w.session(srv)
		c.did(create("/a", 1))
		srv.Isolate(srv.Addr())
		until(began.Add(9 * time.Second))
		c.did(ping())
		expires(w, srv, c, began.Add(10050*time.Millisecond))
		require.Equal(w, []string{"zookeeper"}, srv.Children("/"))
		c.did(ping()) // this server is not informed yet
		c.did(get("/a", false))
		srv.ExpireAll() // nor is it now
		c.did(get("/a", false))
		srv.Heal()
		c.end()
		require.Zero(w, c.again(w.dial(srv)).id)
	})
}

func TestSessionMovesAwayFromAnIsolatedServer(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		c := w.session(srv)
		c.did(create("/a", 1))
		srv.Isolate(srv.Addr())
		next := c.again(w.dial(srv, srv.Addrs()[1]))
		require.Equal(w, c.id, next.id)
		next.did(create("/b", 1))
		c.did(get("/a", false)) // it still answers from the old state
		at, _ := srv.Session(c.id)
		require.Equal(w, srv.Addrs()[1], at.Server)
		srv.Heal()
		c.end()
		next.did(get("/b", false))
		at, _ = srv.Session(c.id)
		require.Equal(w, srv.Addrs()[1], at.Server)
	})
}

func TestIsolatedServerShowsTheStateOfItsLastMoment(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		c.did(create("/a", 0))
		c.did(create("/a/b", 1))
		srv.Isolate()
		srv.Isolate() // again: nothing new
		srv.Delete("/a")
		c.did(get("/a/b", false))
		require.Equal(w, []string{"b"}, c.did(list("/a", false)).body.Strings())
		srv.Heal()
		c.end()
		require.EqualValues(w, proto.CodeNoNode, c.again(w.dial(srv)).call(get("/a", false)).code)
	})
}

func TestStopEndsAnIsolation(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(3))
		srv.Isolate(srv.Addr())
		srv.Freeze(srv.Addr())
		srv.Stop(srv.Addr())
		require.NoError(w, srv.Restart())
		w.session(srv).did(create("/a", 0))
	})
}
