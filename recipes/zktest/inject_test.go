package zktest_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestDropReply(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c, other := w.session(srv), w.session(srv)
		srv.DropReply(zktest.OpCreate, 2, c.id)
		other.did(create("/other", 0))
		for _, path := range []string{"/a", "/b"} {
			c.did(exists("/", false))
			c.send(create(path, 1), get("/", false))
			c.end()
			c = c.again(w.dial(srv))
		}
		c.did(create("/c", 1))
		require.Equal(w, []string{"a", "b", "c", "other", "zookeeper"}, srv.Children("/"))
	})
}

func TestDropRequest(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		srv.DropRequest(zktest.OpAny, 1)
		c := w.session(srv) // OpAny does not select handshakes
		c.did(ping())       // nor pings
		c.send(create("/a", 1), create("/b", 1))
		c.end()
		c = c.again(w.dial(srv))
		c.did(create("/c", 1))
		require.Equal(w, []string{"c", "zookeeper"}, srv.Children("/"))
	})
}

func TestRemoveCancelsDrop(t *testing.T) {
	srv := zktest.NewServer(t)
	c := tcp(t).session(srv)
	noReply, noRequest := srv.DropReply(zktest.OpCreate, 2), srv.DropRequest(zktest.OpDelete, 1)
	c.send(create("/a", 0))
	c.end()
	noReply()
	noRequest()
	noRequest()
	c = c.again(tcp(t).dial(srv))
	c.did(create("/b", 0))
	c.did(remove("/b"))
}

func TestDropOfTheRealClientsCreate(t *testing.T) {
	t.Parallel() // because a second of real time passes in it
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		conn := w.conn(srv)
		srv.DropReply(zktest.OpCreate, 1)
		_, err := conn.Create("/a", nil, zk.FlagEphemeral, all)
		require.Error(w, err)
		require.NotErrorIs(w, err, zk.ErrNodeExists)
		testkit.Eventually(w, func() bool { return conn.State() == zk.StateHasSession }, "the session's return")
		_, err = conn.Create("/a", nil, zk.FlagEphemeral, all)
		require.ErrorIs(w, err, zk.ErrNodeExists)
	})
}

func TestDropOfAHandshake(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		srv.DropReply(zktest.OpConnect, 1)
		c := newRaw(w, w.dial(srv))
		c.hail(time.Minute)
		c.end()
		sessions := srv.Sessions()
		require.Len(w, sessions, 1, "the answer alone was lost")
		require.Empty(w, sessions[0].Server)

		srv.DropRequest(zktest.OpConnect, 1)
		c = newRaw(w, w.dial(srv))
		c.hail(time.Second)
		c.end()
		require.Len(w, srv.Sessions(), 1)
	})
}

func TestDropOfAClose(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		a, b := w.session(srv), w.session(srv)
		srv.DropReply(zktest.OpClose, 1, a.id)
		srv.DropRequest(zktest.OpClose, 1, b.id)
		a.send(closing())
		a.end()
		b.send(closing())
		b.end()
		require.Len(w, srv.Sessions(), 1)
		require.Zero(w, a.again(w.dial(srv)).id)
		require.NotZero(w, b.again(w.dial(srv)).id)
	})
}

func TestNoAnswer(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		remove := srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Path == "/a" {
				return zktest.Fault{Lost: zktest.NoAnswer}
			}
			return zktest.Fault{}
		})
		c.send(create("/b", 0), create("/a", 0), create("/c", 0), ping())
		require.EqualValues(w, 1, c.read().xid)
		c.hearsNothing()
		remove()
		c.send(ping())
		c.hearsNothing() // the connection hangs forever
		require.Equal(w, []string{"b", "zookeeper"}, srv.Children("/"))
		c = c.again(w.dial(srv))
		c.did(create("/a", 0))
	})
}

func TestRefusal(t *testing.T) {
	for _, refusal := range []zktest.Refusal{
		zktest.RefuseNoAuth, zktest.RefuseNoNode, zktest.RefuseUnimplemented, zktest.RefuseTimeout,
		zktest.RefuseSessionExpired, zktest.RefuseSessionMoved, zktest.RefuseMarshallingFail,
	} {
		t.Run(proto.CodeName(int32(refusal)), func(t *testing.T) {
			srv := zktest.NewServer(t)
			c := tcp(t).session(srv)
			remove := srv.Inject(func(zktest.Request) zktest.Fault {
				return zktest.Fault{Refusal: refusal}
			})
			require.EqualValues(t, refusal, c.call(create("/a", 0)).code)
			require.EqualValues(t, refusal, c.call(get("/", false)).code)
			require.EqualValues(t, refusal, c.call(auth("digest", "u:p")).code)
			require.EqualValues(t, proto.CodeOK, c.call(ping()).code, "there is no such answer to a ping")
			w := tcp(t).session(srv) // nor to a handshake
			remove()
			w.did(create("/a", 0))
			c.did(get("/a", false))
		})
	}
}

func TestSeveralRulesGiveTheWorst(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		rule := func(f zktest.Fault) func() {
			return srv.Inject(func(r zktest.Request) zktest.Fault {
				if r.Op == zktest.OpCreate {
					return f
				}
				return zktest.Fault{}
			})
		}
		remove := rule(zktest.Fault{Delay: time.Second})
		rule(zktest.Fault{Delay: 3 * time.Second, Refusal: zktest.RefuseNoAuth})
		rule(zktest.Fault{Delay: 2 * time.Second, Refusal: zktest.RefuseNoNode})
		require.EqualValues(w, zktest.RefuseNoAuth, c.call(create("/a", 0)).code)
		require.Equal(w, 3*time.Second, time.Since(began))
		remove()
		remove()
		rule(zktest.Fault{Lost: zktest.ReplyLost})
		rule(zktest.Fault{Lost: zktest.RequestLost})
		c.send(create("/a", 0))
		c.end()
		require.Equal(w, 6*time.Second, time.Since(began), "the connection ends when the answer would have come")
		require.Equal(w, []string{"zookeeper"}, srv.Children("/"))
	})
}

func TestRuleSeesRequestFields(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		at := srv.Addrs()[1]
		var got []string
		srv.Inject(func(r zktest.Request) zktest.Fault {
			got = append(got, fmt.Sprintf("%v %v %s %v %v", r.Op, r.Path, r.Server, r.Session, r.Time.Sub(began)))
			return zktest.Fault{}
		})
		c := w.session(srv, at)
		pass(time.Second)
		c.did(create("/a", 0))
		c.did(multi(part(check("/a"))))
		c.did(reads(part(get("/a", false)), part(get("/b", false))))
		c.did(reads())
		c.did(ping())
		c = c.again(w.dial(srv, at))
		c.did(closing())
		c.end()
		id := fmt.Sprint(c.id)
		require.Equal(w, []string{
			"connect  " + at + " 0 0s",
			"create /a " + at + " " + id + " 1s",
			"multi /a " + at + " " + id + " 1s",
			"multiRead /a " + at + " " + id + " 1s",
			"multiRead  " + at + " " + id + " 1s",
			"ping  " + at + " " + id + " 1s",
			"connect  " + at + " " + id + " 1s",
			"close  " + at + " " + id + " 1s",
		}, got)
	})
}

// The effects of a rule on the server precede the request.
func TestRulesCallTheServer(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(srv *zktest.Server, c *raw)
		want string // of the request
	}{
		"expire":        {func(srv *zktest.Server, c *raw) { srv.Expire(c.id) }, "cut off"},
		"disconnect":    {func(srv *zktest.Server, c *raw) { srv.Disconnect(c.id) }, "cut off"},
		"stop":          {func(srv *zktest.Server, _ *raw) { srv.Stop() }, "cut off"},
		"partition":     {func(srv *zktest.Server, c *raw) { srv.Partition(c.id) }, "on its way"},
		"partition all": {func(srv *zktest.Server, _ *raw) { srv.Partition() }, "on its way"},
		"freeze":        {func(srv *zktest.Server, _ *raw) { srv.Freeze() }, "on its way"},
		"isolate":       {func(srv *zktest.Server, _ *raw) { srv.Isolate() }, "stuck"},
		"put":           {func(srv *zktest.Server, _ *raw) { srv.Put("/a", nil) }, "NodeExists"},
		"blip":          {func(srv *zktest.Server, _ *raw) { srv.Partition(); srv.Heal() }, "ok"},
		"look": {func(srv *zktest.Server, c *raw) {
			srv.Session(c.id)
			srv.Sessions()
			srv.Addrs()
			srv.Connections()
			srv.Observe().Stop()
			srv.DropReply(zktest.OpGetData, 1)
			srv.Delay(zktest.OpGetData, time.Hour)()
			srv.Reap()
		}, "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(w world) {
				srv := zktest.NewServer(w)
				c := w.session(srv)
				var asked atomic.Int32
				srv.Inject(func(r zktest.Request) zktest.Fault {
					if r.Op == zktest.OpCreate && asked.Add(1) == 1 {
						test.do(srv, c)
					}
					return zktest.Fault{}
				})
				c.send(create("/a", 0))
				made := []string{"zookeeper"}
				switch test.want {
				case "cut off":
					c.end()
				case "on its way":
					c.hearsNothing()
					require.Equal(w, made, srv.Children("/"))
					srv.Heal()
					require.EqualValues(w, proto.CodeOK, c.read().code)
					require.EqualValues(w, 1, asked.Load(), "a rule is asked once")
					made = []string{"a", "zookeeper"}
				case "stuck":
					c.hearsNothing()
				default:
					require.Equal(w, test.want, proto.CodeName(c.read().code))
					made = []string{"a", "zookeeper"}
				}
				require.Equal(w, made, srv.Children("/"))
			})
		})
	}
}
