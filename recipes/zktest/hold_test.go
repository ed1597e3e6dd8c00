package zktest_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// hold adds a rule that holds requests of an operation until released.
func hold(tb testing.TB, srv *zktest.Server, op zktest.Op) (held <-chan struct{}, letGo func()) {
	tb.Helper()
	arrived, released := make(chan struct{}, 100), make(chan struct{})
	srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == op {
			arrived <- struct{}{}
			<-released
		}
		return zktest.Fault{}
	})
	letGo = sync.OnceFunc(func() { close(released) })
	tb.Cleanup(letGo)
	return arrived, letGo
}

func TestHeldRequestHoldsBackLaterRequests(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c, other := w.session(srv), w.session(srv)
		held, letGo := hold(w, srv, zktest.OpCreate)
		c.did(list("/", true))
		c.send(get("/", false), create("/a", 0), get("/a", false))
		require.EqualValues(w, 2, c.read().xid, "what was before it")
		testkit.Receive(w, held, "a request is held")
		c.send(ping()) // the line takes it
		c.hearsNothing()
		srv.Put("/event", nil)
		kind, path := c.event() // not a matter of the request
		require.Equal(w, "ChildrenChanged /", kind+" "+path)
		other.did(list("/", false))
		letGo()
		require.EqualValues(w, 3, c.read().xid)
		require.EqualValues(w, 4, c.read().xid)
		require.EqualValues(w, proto.XidPing, c.read().xid)
	})
}

// A failed require in a rule ends its goroutine.
func TestRuleThatEndsItsGoroutine(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c, other := w.session(srv), w.session(srv)
		c.did(list("/", true))
		remove := srv.Inject(func(zktest.Request) zktest.Fault {
			runtime.Goexit()
			panic("unreachable")
		})
		c.send(create("/a", 0), ping())
		c.hearsNothing()
		remove()
		srv.Put("/event", nil)
		kind, path := c.event()
		require.Equal(w, "ChildrenChanged /", kind+" "+path)
		other.did(create("/b", 0))
		srv.Partition()
		srv.Heal()
		require.Equal(w, c.id, c.again(w.dial(srv)).id)
		require.NoError(w, srv.Close())
	})
}

// Heal resumes connections without waiting for rules.
func TestHealDoesNotWaitForRules(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c, other := w.session(srv), w.session(srv)
		held, letGo := hold(w, srv, zktest.OpCreate)
		srv.Partition()
		c.send(create("/a", 0))
		other.send(get("/", false))
		srv.Heal()
		testkit.Receive(w, held, "a request is held")
		require.EqualValues(w, proto.CodeOK, other.read().code)
		letGo()
		require.EqualValues(w, proto.CodeOK, c.read().code)
	})
}

func TestPartitionInTheMiddleOfAPipeline(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Path == "/n50" {
				srv.Partition(c.id)
			}
			return zktest.Fault{}
		})
		var requests []request
		for i := range 100 {
			requests = append(requests, create(fmt.Sprintf("/n%d", i), 0))
		}
		c.send(requests...)
		testkit.Eventually(w, func() bool { return len(srv.Children("/")) == 51 }, "fifty znodes beside /zookeeper")
		answered := 0 // some answers may be too late for their way back
		for ; c.hears(); answered++ {
			require.EqualValues(w, answered+1, c.read().xid)
		}
		require.LessOrEqual(w, answered, 50)
		require.Len(w, srv.Children("/"), 51)
		srv.Heal()
		for ; answered < 100; answered++ {
			require.EqualValues(w, answered+1, c.read().xid)
		}
	})
}

func TestDelayHoldsBackThisAndLaterAnswers(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c, other := w.session(srv), w.session(srv)
		remove := srv.Delay(zktest.OpCreate, 3*time.Second, c.id)
		c.send(get("/", false), create("/a", 0), get("/a", false), ping())
		require.EqualValues(w, 1, c.read().xid)
		pass(0)
		other.did(get("/a", false)) // the request itself is not late
		other.did(create("/b", 0))
		require.Equal(w, time.Duration(0), time.Since(began))
		require.EqualValues(w, 2, c.read().xid)
		require.Equal(w, 3*time.Second, time.Since(began))
		require.EqualValues(w, 3, c.read().xid)
		require.EqualValues(w, proto.XidPing, c.read().xid)
		remove()
		remove()
		c.did(create("/c", 0))
		require.Equal(w, 3*time.Second, time.Since(began))
	})
}

// A request sets a watch; its client knows of the watch once the request is answered.
func TestDelayedAnswerPrecedesTheEventOfItsWatch(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		srv.Put("/a", nil)
		conn := w.conn(srv)
		srv.Delay(zktest.OpGetData, time.Second)
		go func() {
			time.Sleep(time.Second / 2) //nolint:forbidigo // virtual time
			srv.Put("/a", nil)
		}()
		_, _, changes, err := conn.GetW("/a")
		require.NoError(w, err)
		require.Equal(w, zk.EventNodeDataChanged, testkit.Receive(w, changes, "the event").Type)
		require.Equal(w, time.Second, time.Since(began))
	})
}

func TestPingOnADelayedConnectionExtendsTheSession(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		c.send(ping())
		c.read()
		srv.Delay(zktest.OpCreate, 20*time.Second)
		c.send(create("/a", 1))
		pass(9 * time.Second)
		c.send(ping())
		expires(w, srv, c, began.Add(19050*time.Millisecond))
	})
}

func TestDelayEndsWithItsConnection(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		srv.Delay(zktest.OpCreate, time.Hour)
		c.send(create("/a", 1))
		testkit.Eventually(w, func() bool { return len(srv.Children("/")) == 2 }, "the znode")
		require.NoError(w, c.conn.Close())
		testkit.Eventually(w, func() bool { return srv.Connections() == 0 }, "the connection's end")
		c.again(w.dial(srv)).did(get("/a", false))
	})
}

func TestDelayOfOne(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c, other := w.session(srv), w.session(srv)
		srv.Delay(zktest.OpAny, time.Minute, c.id)
		other.did(create("/a", 0))
		c.did(ping())
		require.Equal(w, time.Duration(0), time.Since(began))
	})
}

func TestDelayDuringAPartition(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		srv.Delay(zktest.OpCreate, time.Second)
		c.send(create("/a", 0), get("/a", false))
		pass(time.Second / 2)
		srv.Partition()
		pass(time.Second)
		c.hearsNothing()
		srv.Heal()
		require.EqualValues(w, 1, c.read().xid)
		require.EqualValues(w, 2, c.read().xid)
	})
}

// The close of a session is answered before the connection ends.
func TestDelayOfAClose(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		srv.Delay(zktest.OpClose, time.Second)
		c.send(closing(), ping())
		require.EqualValues(w, proto.CodeOK, c.read().code)
		require.Equal(w, time.Second, time.Since(began))
		c.end()
	})
}
