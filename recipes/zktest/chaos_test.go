package zktest_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// chaos injects random faults into a server, from a seed.
type chaos struct {
	*rand.Rand
	srv     *zktest.Server
	removes []func() // remove the rules
}

// sessions chooses some sessions, or all.
func (c *chaos) sessions() (ids []int64) {
	for _, n := range c.srv.Sessions() {
		if c.IntN(3) == 0 {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

func (c *chaos) server() string {
	all := c.srv.Addrs()
	return all[c.IntN(len(all))]
}

func (c *chaos) op() zktest.Op {
	ops := []zktest.Op{
		zktest.OpAny, zktest.OpConnect, zktest.OpPing, zktest.OpCreate, zktest.OpGetChildren2, zktest.OpSetWatches, zktest.OpDelete,
	}
	return ops[c.IntN(len(ops))]
}

// step injects one fault and returns its description.
func (c *chaos) step() string {
	deeds := []struct {
		name string
		do   func()
	}{
		{"partition", func() { c.srv.Partition(c.sessions()...) }},
		{"freeze", func() { c.srv.Freeze(c.server()) }},
		{"isolate", func() { c.srv.Isolate(c.server()) }},
		{"heal", func() { c.srv.Heal() }},
		{"heal one", func() { c.srv.Heal(c.server()) }},
		{"stop", func() { c.srv.Stop(c.server()) }},
		{"stop all", func() { c.srv.Stop() }},
		{"restart", func() { _ = c.srv.Restart() }},
		{"restart one", func() { _ = c.srv.Restart(c.server()) }},
		{"disconnect", func() { c.srv.Disconnect(c.sessions()...) }},
		{"expire", func() {
			for _, id := range c.sessions() {
				c.srv.Expire(id)
			}
		}},
		{"drop reply", func() {
			c.removes = append(c.removes, c.srv.DropReply(c.op(), c.IntN(4), c.sessions()...))
		}},
		{"drop request", func() {
			c.removes = append(c.removes, c.srv.DropRequest(c.op(), c.IntN(4), c.sessions()...))
		}},
		{"delay", func() {
			c.removes = append(c.removes, c.srv.Delay(c.op(), time.Duration(c.IntN(3000))*time.Millisecond, c.sessions()...))
		}},
		{"no answer", func() {
			op := c.op()
			c.removes = append(c.removes, c.srv.Inject(func(r zktest.Request) zktest.Fault {
				if r.Op == op {
					return zktest.Fault{Lost: zktest.NoAnswer}
				}
				return zktest.Fault{}
			}))
		}},
		{"remove", func() { c.calm() }},
		{"delete", func() { c.srv.Delete("/all") }},
		{"put", func() { c.srv.Put("/all", nil) }},
		{"reap", func() { c.srv.Reap() }},
		{"step in a rule", func() {
			var done atomic.Bool
			c.removes = append(c.removes, c.srv.Inject(func(zktest.Request) zktest.Fault {
				if done.CompareAndSwap(false, true) {
					c.srv.Partition()
					c.srv.Heal()
					c.srv.Disconnect()
				}
				return zktest.Fault{}
			}))
		}},
	}
	deed := deeds[c.IntN(len(deeds))]
	deed.do()
	return deed.name
}

func (c *chaos) calm() {
	for _, remove := range c.removes {
		remove()
	}
	c.removes = nil
}

// After any faults on a server and its clients, all clients work again, and the server's state is
// as expected.
func TestServerSurvivesChaos(t *testing.T) {
	for seed := range testkit.Shorter[uint64](20, 2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(w world) {
				srv := zktest.NewServer(w, zktest.WithServers(3), zktest.WithTouchInterval(time.Duration(seed%2)*time.Second))
				srv.Put("/all", nil)
				conns := make([]*zk.Conn, 4)
				busy := make(chan struct{})
				for i := range conns {
					conns[i] = w.client(srv).Conn() // whose wire keeps zk.Conn from racing with its own setWatches
					go keepBusy(conns[i], busy)
				}
				c := &chaos{Rand: rand.New(rand.NewPCG(seed, 0)), srv: srv}
				for range 60 {
					w.Log(time.Since(began), c.step())
					pass(time.Duration(c.IntN(2000)) * time.Millisecond)
				}
				close(busy)
				c.calm()
				srv.Heal()
				require.NoError(w, srv.Restart())
				srv.Put("/all", nil)
				pass(3 * time.Minute) // a zk.Conn waits for a handshake as long as ten receive timeouts
				consistent(w, srv, conns)
			})
		})
	}
}

// keepBusy makes a client send requests until stopped.
func keepBusy(conn *zk.Conn, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(50 * time.Millisecond):
			path, err := conn.Create("/all/n-", nil, zk.FlagEphemeral|zk.FlagSequence, all)
			if err == nil {
				_, _, _, _ = conn.ChildrenW("/all")
				_ = conn.Delete(path, -1)
			}
		}
	}
}

func consistent(w world, srv *zktest.Server, conns []*zk.Conn) {
	w.Helper()
	require.Equal(w, len(conns), srv.Connections())
	require.Len(w, srv.Sessions(), len(conns))
	for _, conn := range conns {
		path, err := conn.Create("/all/last-", nil, zk.FlagEphemeral|zk.FlagSequence, all)
		require.NoError(w, err)
		_, stat, changes, err := conn.GetW(path)
		require.NoError(w, err)
		require.Equal(w, conn.SessionID(), stat.EphemeralOwner)
		srv.Delete(path)
		require.Equal(w, zk.EventNodeDeleted, testkit.Receive(w, changes, "the event").Type)
	}
	left := 0
	for _, n := range srv.Sessions() {
		left += len(n.Ephemerals)
		require.NotEmpty(w, n.Server)
	}
	require.Len(w, srv.Children("/all"), left)
	srv.ExpireAll()
	require.Empty(w, srv.Children("/all"))
}
