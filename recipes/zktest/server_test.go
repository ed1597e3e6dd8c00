package zktest_test

import (
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestServerServesTheRealClient(t *testing.T) {
	everywhere(t, func(w world) {
		conn := w.conn(zktest.NewServer(w))
		path, err := conn.Create("/a", []byte("x"), 0, all)
		require.NoError(w, err)
		require.Equal(w, "/a", path)
		_, stat, changes, err := conn.GetW("/a")
		require.NoError(w, err)
		require.EqualValues(w, 1, stat.DataLength)
		_, err = conn.Set("/a", []byte("yy"), 0)
		require.NoError(w, err)
		require.Equal(w, zk.EventNodeDataChanged, testkit.Receive(w, changes, "the event").Type)
		names, _, err := conn.Children("/")
		require.NoError(w, err)
		require.ElementsMatch(w, []string{"a", "zookeeper"}, names)
	})
}

func TestOneServerServesTCPAndPipes(t *testing.T) {
	srv := zktest.NewServer(t)
	first := tcp(t).session(srv)
	conn, err := srv.Dialer()("tcp", srv.Addr(), patience)
	require.NoError(t, err)
	second := session(t, conn, time.Second)
	first.did(create("/a", 0))
	second.did(get("/a", false))
}

func TestNewServerIsClosedAtTestEnd(t *testing.T) {
	var srv *zktest.Server
	t.Run("inner", func(t *testing.T) {
		srv = zktest.NewServer(t)
		conn, err := net.Dial("tcp", srv.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close()) })
	})
	_, err := net.Dial("tcp", srv.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// failing records the failure of a test.
type failing struct {
	testing.TB
	failure any
}

func (f *failing) Helper()           {}
func (f *failing) Fatal(args ...any) { f.failure = args[0] }
func (f *failing) Cleanup(func())    {}

func TestNewServerFailsTheTestIfItCannotStart(t *testing.T) {
	f := &failing{TB: t}
	zktest.NewServer(f, zktest.WithServers(0))
	require.EqualError(t, f.failure.(error), "zktest: 0 servers")
}

func TestCloseIsIdempotentAndLeavesNothing(t *testing.T) {
	everywhere(t, func(w world) {
		leaks := goleak.IgnoreCurrent()
		srv, err := zktest.Start(zktest.WithServers(3), zktest.WithTouchInterval(time.Second))
		require.NoError(w, err)
		c := w.session(srv, srv.Addrs()[1])
		c.did(create("/a", 1))
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() { _ = srv.Close() })
		}
		group.Wait()
		require.NoError(w, srv.Close())
		c.end()
		require.Zero(w, srv.Connections())
		_, err = w.dialer(srv)("tcp", srv.Addr(), time.Second)
		require.ErrorIs(w, err, syscall.ECONNREFUSED)
		if !w.virtual { // a bubble checks that itself
			require.NoError(w, goleak.Find(leaks))
		}
	})
}

func TestCloseWhileEverythingHappens(t *testing.T) {
	t.Parallel() // because a second of real time passes in it
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		log := srv.Observe()
		var group sync.WaitGroup
		for range 8 {
			conn := w.conn(srv)
			group.Go(func() {
				for {
					path, err := conn.Create("/a-", nil, zk.FlagEphemeral|zk.FlagSequence, all)
					if err != nil {
						return
					}
					_ = conn.Delete(path, -1)
				}
			})
		}
		require.NoError(w, log.Wait(testkit.Context(w), 200))
		require.NoError(w, srv.Close())
		group.Wait()
		require.Zero(w, srv.Connections())
	})
}

func TestCloseInTheMiddleOfFaults(t *testing.T) {
	faults := map[string]func(srv *zktest.Server, c *raw){
		"partition": func(srv *zktest.Server, _ *raw) { srv.Partition() },
		"of one":    func(srv *zktest.Server, c *raw) { srv.Partition(c.id) },
		"freeze":    func(srv *zktest.Server, _ *raw) { srv.Freeze() },
		"isolate":   func(srv *zktest.Server, _ *raw) { srv.Isolate() },
		"stop":      func(srv *zktest.Server, _ *raw) { srv.Stop() },
		"delay":     func(srv *zktest.Server, _ *raw) { srv.Delay(zktest.OpAny, time.Hour) },
		"no answer": func(srv *zktest.Server, _ *raw) {
			srv.Inject(func(zktest.Request) zktest.Fault { return zktest.Fault{Lost: zktest.NoAnswer} })
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(w world) {
				srv := zktest.NewServer(w)
				c := w.session(srv)
				fault(srv, c)
				_, _ = c.conn.Write([]byte("\x00\x00\x00\x08\xff\xff\xff\xfe\x00\x00\x00\x0b")) // a ping
				_, _ = c.conn.Write([]byte("\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x01")) // a create
				require.NoError(w, srv.Close())
				srv.Heal()
				require.NoError(w, srv.Restart())
				require.Zero(w, srv.Connections())
			})
		})
	}
}

func TestCloseEndsBlockedDialers(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		srv.Partition()
		failed := make(chan error)
		for range 3 {
			go func() {
				_, err := srv.Dialer()("tcp", srv.Addr(), time.Hour)
				failed <- err
			}()
		}
		pass(time.Minute)
		require.NoError(w, srv.Close())
		for range 3 {
			require.ErrorIs(w, testkit.Receive(w, failed, "the failure"), syscall.ECONNREFUSED)
		}
		require.Equal(w, began.Add(time.Minute), time.Now().UTC())
	})
}

func TestStartRefusesBadOptions(t *testing.T) {
	for want, opt := range map[string]zktest.Option{
		"zktest: empty address":                                         zktest.WithAddress(""),
		"zktest: 0 servers":                                             zktest.WithServers(0),
		"zktest: -1 servers":                                            zktest.WithServers(-1),
		"zktest: tick time 999µs is below 1ms":                          zktest.WithTickTime(999 * time.Microsecond),
		"zktest: touch interval -1ns":                                   zktest.WithTouchInterval(-1),
		"zktest: clock rate 0":                                          zktest.WithClockRate(0),
		"zktest: session timeouts from 2s to 1s":                        zktest.WithSessionTimeouts(2*time.Second, time.Second),
		"zktest: session timeouts from 0s to 1s":                        zktest.WithSessionTimeouts(0, time.Second),
		"zktest: reap interval 0s":                                      zktest.WithReapInterval(0),
		"zktest: listen tcp: address nonsense: missing port in address": zktest.WithAddress("nonsense"),
	} {
		t.Run(want, func(t *testing.T) {
			srv, err := zktest.Start(opt)
			require.EqualError(t, err, want)
			require.Nil(t, srv)
		})
	}
}

func TestAddress(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	leaks := goleak.IgnoreCurrent()

	_, err = zktest.Start(zktest.WithAddress(taken.Addr().String()))
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, taken.Addr().String())
	require.NoError(t, goleak.Find(leaks), "after a start that failed")

	require.NoError(t, taken.Close())
	srv := zktest.NewServer(t, zktest.WithAddress(taken.Addr().String()))
	require.Equal(t, taken.Addr().String(), srv.Addr())
	tcp(t).session(srv)

	_, err = zktest.Start(zktest.WithAddress("127.0.0.1:2181"), zktest.WithServers(2))
	require.ErrorContains(t, err, "zktest: 2 servers can't share the address 127.0.0.1:2181")
}

func TestServersShareATree(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(3))
		addresses := srv.Addrs()
		require.Len(w, addresses, 3)
		require.Equal(w, srv.Addr(), addresses[0])
		clients := make([]*raw, 3)
		for i, address := range addresses {
			if !w.virtual {
				require.True(w, strings.HasPrefix(address, "127.0.0.1:"), address)
			}
			clients[i] = w.session(srv, address)
			at, _ := srv.Session(clients[i].id)
			require.Equal(w, address, at.Server)
		}
		clients[2].did(list("/", true))
		clients[0].did(create("/a", 0))
		kind, path := clients[2].event()
		require.Equal(w, "ChildrenChanged /", kind+" "+path)
		clients[1].did(get("/a", false))
	})
}

func TestDialerTakesAnyAddressForTheFirstServer(t *testing.T) {
	srv := zktest.NewServer(t, zktest.WithServers(2))
	conn, err := srv.Dialer()("tcp", "zookeeper.example:2181", 0)
	require.NoError(t, err)
	c := session(t, conn, time.Second)
	at, _ := srv.Session(c.id)
	require.Equal(t, srv.Addr(), at.Server)
}
