package zktest_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// pipelined is the number of requests in flight at the same time.
const pipelined = 1000

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	rules := map[string]func(*zktest.Server){
		"plainly": func(*zktest.Server) {},
		"under a rule": func(srv *zktest.Server) {
			srv.Inject(func(zktest.Request) zktest.Fault { return zktest.Fault{} })
		},
		"late now and then": func(srv *zktest.Server) {
			n := 0
			srv.Inject(func(zktest.Request) zktest.Fault {
				if n++; n%100 == 0 {
					return zktest.Fault{Delay: time.Millisecond}
				}
				return zktest.Fault{}
			})
		},
		"with a silence": func(srv *zktest.Server) {
			n := 0
			srv.Inject(func(r zktest.Request) zktest.Fault {
				if n++; n == pipelined/2 {
					srv.Partition(r.Session)
					go srv.Heal()
				}
				return zktest.Fault{}
			})
		},
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(w world) {
				srv := zktest.NewServer(w)
				rule(srv)
				c := w.session(srv)
				var requests []request
				for i := range pipelined {
					requests = append(requests, []request{
						create(fmt.Sprintf("/n%d", i/4), 0), exists("/", false), remove(fmt.Sprintf("/n%d", i/4)), get("/", false),
					}[i%4])
				}
				c.send(requests...) // and only then does it read
				var before int64
				for i := range pipelined {
					answer := c.read()
					require.EqualValues(w, i+1, answer.xid)
					require.EqualValues(w, proto.CodeOK, answer.code)
					require.GreaterOrEqual(w, answer.zxid, before)
					before = answer.zxid
				}
			})
		})
	}
}

func TestAsynchronousRequestsOfTheRealClientKeepTheirOrder(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		conn := w.conn(srv)
		log := srv.Observe()
		var group sync.WaitGroup
		for range pipelined {
			group.Go(func() {
				_, err := conn.Create("/n-", nil, zk.FlagEphemeral|zk.FlagSequence, all)
				require.NoError(w, err)
			})
		}
		group.Wait()
		require.Equal(w, pipelined, log.Count(zktest.OpCreate))
		require.Len(w, srv.Children("/"), pipelined+1)
		at, _ := srv.Session(conn.SessionID())
		require.Len(w, at.Ephemerals, pipelined)
	})
}

// An event precedes the answer to any read of the new state, on every connection.
func TestEventPrecedesReadsOfTheNewState(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		writer, reader := w.session(srv), w.session(srv)
		writer.did(create("/a", 0))
		for i := range 200 {
			reader.did(get("/a", true))
			reader.send(get("/a", false))
			writer.send(set("/a", fmt.Sprint(i)))
			told, answered := false, false
			for !told || !answered {
				r := reader.read()
				if r.xid == proto.XidEvent {
					told = true
					continue
				}
				answered = true
				if !told {
					require.NotEqual(w, fmt.Sprint(i), string(r.body.Buffer()), "seen before it was told")
				}
			}
			require.EqualValues(w, proto.CodeOK, writer.read().code)
		}
	})
}

// The writer's own watch fires before its write is answered.
func TestOwnEventPrecedesTheAnswer(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		c.did(list("/", true))
		c.send(create("/a", 0))
		kind, path := c.event()
		require.Equal(w, "ChildrenChanged /", kind+" "+path)
		require.EqualValues(w, proto.CodeOK, c.read().code)
	})
}
