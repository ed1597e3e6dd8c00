package zktest_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// capacity is the number of sessions that one server must support; with -short, a fifth.
var capacity = 10_000

// most bounds the memory of a session, both sides included.
const most = 32 << 10

func TestServerHoldsManySessions(t *testing.T) {
	bubble(t, func(w world) {
		n := testkit.Shorter(capacity, capacity/5)
		srv := zktest.NewServer(w)
		before := inUse()
		clients := make([]*raw, n)
		for i := range clients {
			clients[i] = w.session(srv)
			clients[i].did(create("/n-", proto.FlagEphemeral|proto.FlagSequential))
		}
		require.Len(w, srv.Sessions(), n)
		require.Equal(w, n, srv.Connections())
		require.Len(w, srv.Children("/"), n+1)

		for range 3 {
			pass(9 * time.Second)
			for _, c := range clients {
				c.did(ping())
			}
		}
		require.Len(w, srv.Sessions(), n, "they are alive")
		each := (inUse() - before) / n
		w.Logf("%d sessions, %d bytes for each", n, each)
		require.Less(w, each, most)

		until(began.Add(27*time.Second + 10050*time.Millisecond - 1))
		require.Len(w, srv.Sessions(), n)
		pass(1)
		require.Empty(w, srv.Sessions())
		require.Zero(w, srv.Connections())
		require.Equal(w, []string{"zookeeper"}, srv.Children("/"))
	})
}

func TestCloseOfManySessions(t *testing.T) {
	everywhere(t, func(w world) {
		n := testkit.Shorter(capacity, capacity/5)
		if !w.virtual {
			n = testkit.Shorter(1_000, 200) // each takes two file descriptors
		}
		srv := zktest.NewServer(w)
		clients := make([]*raw, n)
		for i := range clients {
			clients[i] = session(w, w.dial(srv), time.Minute) // a busy machine takes long for all of them
			clients[i].did(list("/", true))
		}
		for _, c := range clients {
			c.send(ping())
		}
		for _, c := range clients {
			require.EqualValues(w, proto.XidPing, c.read().xid)
		}
		srv.Put("/a", nil)
		for _, c := range clients[1:] {
			kind, path := c.event()
			require.Equal(w, "ChildrenChanged /", kind+" "+path)
		}
		require.NoError(w, srv.Close())
		require.Zero(w, srv.Connections())
		for _, c := range clients[1:] {
			c.end()
		}
	})
}

// inUse returns the memory used by objects and stacks.
func inUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse)
}

func TestAnnouncedFramesCostNothing(t *testing.T) {
	bubble(t, func(w world) {
		const n = 500
		srv := zktest.NewServer(w)
		before := inUse()
		for range n {
			w.session(srv).write([]byte("\x00\x0f\xff\xff\x00\x00\x00\x01\x00\x00\x00\x01"))
		}
		require.Less(w, (inUse()-before)/n, most, "bytes for each")
	})
}

func TestClientThatDoesNotReadCostsLittle(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		srv.Put("/a", make([]byte, 1_000_000))
		c, other := session(w, w.dial(srv), time.Hour), w.session(srv)
		before := inUse()
		sent := make(chan struct{})
		n := testkit.Shorter(100, 50) // answers of a megabyte
		go func() {
			defer close(sent)
			for range n {
				c.send(get("/a", false))
			}
		}()
		testkit.Receive(w, sent, "all requests are sent")
		other.did(get("/a", false))
		require.Less(w, inUse()-before, 32<<20)
		for i := range n {
			require.EqualValues(w, i+1, c.read().xid)
		}
	})
}

func TestClientThatFloodsASilentServerHasToWait(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		srv.Freeze()
		before := inUse()
		frame := proto.NewEncoder().Int32(proto.XidPing).Int32(proto.OpPing).Raw(make([]byte, 1_000_000)).Frame()
		require.NoError(w, c.conn.SetWriteDeadline(time.Now().Add(time.Minute)))
		n := 0
		for ; n < 100; n++ {
			if _, err := c.conn.Write(frame); err != nil {
				break
			}
		}
		require.Less(w, n, 10)
		require.Less(w, inUse()-before, 32<<20)
		require.NoError(w, srv.Close())
	})
}
