package zktest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A fault without a target must fail the test.
func TestFaultsOnUnknownSessionsPanic(t *testing.T) {
	srv := zktest.NewServer(t)
	faults := map[string]func(id int64){
		"Expire":        srv.Expire,
		"Disconnect":    func(id int64) { srv.Disconnect(id) },
		"Partition":     func(id int64) { srv.Partition(id) },
		"DropReply":     func(id int64) { srv.DropReply(zktest.OpAny, 1, id) },
		"DropRequest":   func(id int64) { srv.DropRequest(zktest.OpAny, 1, id) },
		"Delay":         func(id int64) { srv.Delay(zktest.OpAny, time.Second, id) },
		"DropAnswer":    func(id int64) { srv.DropAnswer(zktest.OpAny, 1, id) },
		"DropEvent":     func(id int64) { srv.DropEvent(1, id) },
		"PartitionFrom": func(id int64) { srv.PartitionFrom(srv.Addr(), id) },
		"HealSessions":  func(id int64) { srv.HealSessions(id) },
		"Bandwidth":     func(id int64) { srv.SetBandwidth(1, id) },
	}
	c := tcp(t).session(srv)
	c.did(create("/a", 1))
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			const none = "zktest: session 0: the client has no session yet; ExpireAll, or a fault without ids, concerns all"
			require.PanicsWithValue(t, none, func() { fault(0) })
			require.PanicsWithValue(t, "zktest: session 0x1267: this server has opened no such session", func() { fault(4711) })
			require.Panics(t, func() { fault(c.id + 1) })
			c.did(get("/a", false))
		})
	}
	srv.Expire(c.id)
	for name, fault := range faults {
		switch name {
		case "DropReply", "DropRequest", "DropAnswer", "Delay", "DropEvent": // of future requests, of which none is sent
			const ended = "zktest: session 0x%x: the session has ended, and sends no requests any more"
			require.PanicsWithValue(t, fmt.Sprintf(ended, c.id), func() { fault(c.id) }, name)
		default: // an end before its fault is no typo
			fault(c.id)
		}
	}
}

func TestUnknownOperationsPanic(t *testing.T) {
	srv := zktest.NewServer(t)
	for _, op := range []zktest.Op{42, -11 - 1, 23} {
		require.Panics(t, func() { srv.DropReply(op, 1) }, op)
		require.Panics(t, func() { srv.Delay(op, time.Second) }, op)
	}
	for _, op := range []zktest.Op{zktest.OpAny, zktest.OpConnect, zktest.OpPing, zktest.OpClose, zktest.OpAuth, zktest.OpWhoAmI, zktest.OpMulti} {
		srv.DropRequest(op, 1)()
	}
}

func TestInvalidPathsPanic(t *testing.T) {
	srv := zktest.NewServer(t)
	for _, path := range []string{"", "a", "/a/", "//a", "/a/../b"} {
		want := fmt.Sprintf("zktest: invalid path %q", path)
		require.PanicsWithValue(t, want, func() { srv.Get(path) })
		require.PanicsWithValue(t, want, func() { srv.Children(path) })
		require.PanicsWithValue(t, want, func() { srv.Delete(path) })
		require.PanicsWithValue(t, want, func() { srv.Put(path, nil) })
	}
	require.Equal(t, []string{"zookeeper"}, srv.Children("/"))
	srv.Delete("/missing")
}

func TestFaultsOnUnknownServersPanic(t *testing.T) {
	srv := zktest.NewServer(t, zktest.WithServers(2))
	faults := map[string]func(address string){
		"Freeze":             func(address string) { srv.Freeze(address) },
		"Isolate":            func(address string) { srv.Isolate(address) },
		"Heal":               func(address string) { srv.Heal(address) },
		"PartitionFrom":      func(address string) { srv.PartitionFrom(address) },
		"KeepShowing":        func(address string) { srv.KeepShowing("/zookeeper", address) },
		"Stop":               func(address string) { srv.Stop(address) },
		"Restart":            func(address string) { _ = srv.Restart(address) },
		"SetSessionTimeouts": func(address string) { srv.SetSessionTimeouts(time.Second, time.Minute, address) },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			require.PanicsWithValue(t, `zktest: no server has the address "localhost:2181"; see Addrs`, func() { fault("localhost:2181") })
			tcp(t).session(srv)
		})
	}
}
