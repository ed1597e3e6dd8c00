package selector_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// adopt returns a client of a connection of somebody else's, which need not have a server.
func adopt(t *testing.T, srv *zktest.Server, opts ...recipes.Option) *recipes.Client {
	t.Helper()
	conn, events, err := zk.Connect(srv.Addrs(), timeout, zk.WithDialer(srv.Dialer()), zk.WithLogger(quiet{}))
	require.NoError(t, err)
	srv.Delay(zktest.OpAny, 10*time.Millisecond) // an early answer would race with zk.Conn's look for watches to set again
	client, err := recipes.NewClient(conn, events, opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.Close())
		conn.Close()
	})
	return client
}

// A selector that has started without a server stands through each outage, though what it
// does in the background fails: each change of the connection is told once, and each session
// has its term.
func TestStatesAndTermsOverOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		srv.Stop()
		var states, terms journal
		client := adopt(t, srv, recipes.WithSessionTimeout(timeout))
		changes, stop := client.Subscribe()
		defer stop()
		go func() { // ends with the subscription
			for state := range changes {
				states.add("%v", state)
			}
		}()
		s := enter(t, client, terms.leader("a"), selector.WithAutoRequeue())
		pass(time.Minute)
		require.Equal(t, []string{"suspended"}, states.read())

		require.NoError(t, srv.Restart())
		pass(time.Minute)
		require.Equal(t, []string{"connected"}, states.read())
		require.Equal(t, []string{"a leads"}, terms.read())
		for range 2 {
			srv.Stop()
			pass(time.Minute)
			require.Equal(t, []string{"suspended", "lost"}, states.read())
			require.Equal(t, []string{"a ends: session lost"}, terms.read())
			require.NoError(t, srv.Restart())
			pass(time.Minute)
			require.Equal(t, []string{"reconnected"}, states.read())
			require.Equal(t, []string{"a leads"}, terms.read())
			require.Len(t, srv.Children(election), 1)
		}
		require.NoError(t, s.Close())
		require.Empty(t, srv.Children(election))
	})
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func TestElectionBeginsOnceThereIsAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		srv.Stop()
		var j journal
		early := enter(t, adopt(t, srv), j.leader("closed"))
		late := enter(t, adopt(t, srv), j.leader("a"))
		pass(10 * time.Minute)
		require.Empty(t, j.read())
		start := time.Now()
		require.NoError(t, early.Close())
		require.Equal(t, start, time.Now(), "nothing was sent, so there is nothing to wait for")
		require.NoError(t, srv.Restart())
		pass(time.Minute)
		require.Equal(t, []string{"a leads"}, j.read())
		require.Len(t, srv.Children(election), 1)
		require.NoError(t, late.Close())
	})
}

func TestStartAndCloseOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.ConnectSettled(t, srv)
		s := enter(t, client, idle)
		require.ErrorContains(t, s.Start(), "selector: start /services/billing: already started")
		require.NoError(t, s.Close())
		require.ErrorIs(t, s.Start(), recipes.ErrClosed)

		never := create(t, client, idle)
		require.NoError(t, never.Close())
		require.ErrorIs(t, never.Start(), recipes.ErrClosed)
		require.ErrorIs(t, never.Run(t.Context()), recipes.ErrClosed)
		require.False(t, never.HasLeadership())

		require.NoError(t, client.Close())
		require.ErrorIs(t, create(t, client, idle).Start(), recipes.ErrClosed)
		require.Empty(t, srv.Children(election))
	})
}

// faults are what may happen to a request of a selector.
var faults = map[string]func(srv *zktest.Server, r zktest.Request) zktest.Fault{
	"none":         func(*zktest.Server, zktest.Request) zktest.Fault { return zktest.Fault{} },
	"slow":         func(*zktest.Server, zktest.Request) zktest.Fault { return zktest.Fault{Delay: 3 * time.Second} },
	"request lost": func(*zktest.Server, zktest.Request) zktest.Fault { return zktest.Fault{Lost: zktest.RequestLost} },
	"reply lost":   func(*zktest.Server, zktest.Request) zktest.Fault { return zktest.Fault{Lost: zktest.ReplyLost} },
	"no answer":    func(*zktest.Server, zktest.Request) zktest.Fault { return zktest.Fault{Lost: zktest.NoAnswer} },
	"expiry": func(srv *zktest.Server, r zktest.Request) zktest.Fault {
		srv.Expire(r.Session)
		return zktest.Fault{}
	},
	"expiry, slow": func(srv *zktest.Server, r zktest.Request) zktest.Fault {
		srv.Delay(zktest.OpConnect, time.Second/2)
		srv.Expire(r.Session)
		return zktest.Fault{}
	},
	"wiped parent": func(srv *zktest.Server, _ zktest.Request) zktest.Fault {
		srv.Delete("/services")
		return zktest.Fault{}
	},
	"server gone": func(srv *zktest.Server, _ zktest.Request) zktest.Fault {
		srv.Stop()
		return zktest.Fault{}
	},
	"server silent": func(srv *zktest.Server, _ zktest.Request) zktest.Fault {
		srv.Partition()
		return zktest.Fault{}
	},
}

// works are what a leader may be at when Close comes: its term, or a pause after a failure.
var works = map[string]selector.TakeLeadership{
	"leads": idle,
	"fails": func(context.Context, *recipes.Lease) error { return errWork },
}

// Something happens to the n-th request, for each n. Close comes a moment later, twice at
// once, whatever it finds: it returns in time, and leaves nothing on the server; the
// same goes for Client.Close.
func TestCloseInEveryPhase(t *testing.T) {
	for fault, strike := range faults {
		for work, take := range works {
			for how, end := range map[string]func(*testing.T, *recipes.Client, *selector.LeaderSelector){
				"selector": closeSelector, "client": closeClient,
			} {
				t.Run(fmt.Sprintf("%s/%s/%s", fault, work, how), func(t *testing.T) {
					for n := 1; n <= 8; n += testkit.Shorter(1, 3) {
						synctest.Test(t, func(t *testing.T) {
							srv := zktest.NewServer(t)
							client := testclient.ConnectSettled(t, srv)
							s := create(t, client, take, selector.WithAutoRequeue(), selector.WithErrorHandler(discard))
							strikeAt(srv, n, strike)
							require.NoError(t, s.Start())
							pass(time.Duration(n%3) * 500 * time.Millisecond)
							end(t, client, s)
							require.False(t, s.HasLeadership())

							srv.Heal()
							require.NoError(t, srv.Restart())
							pass(2 * timeout)
							require.NoError(t, s.Close())
							require.NoError(t, client.Close())
							require.Empty(t, srv.Children(election), "request %d", n)
						})
					}
				})
			}
		}
	}
}

// strikeAt lets something happen to the n-th request but pings and handshakes.
func strikeAt(srv *zktest.Server, n int, strike func(*zktest.Server, zktest.Request) zktest.Fault) {
	var seen atomic.Int32
	srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == zktest.OpPing || r.Op == zktest.OpConnect || int(seen.Add(1)) != n {
			return zktest.Fault{}
		}
		return strike(srv, r)
	})
}

// closeSelector closes a selector. Where no answer comes it may say so, after an operation
// timeout.
func closeSelector(t *testing.T, _ *recipes.Client, s *selector.LeaderSelector) {
	t.Helper()
	start := time.Now()
	results := make([]error, 2)
	var group sync.WaitGroup
	for i := range results {
		group.Go(func() { results[i] = s.Close() }) // ends with Close; joined below
	}
	group.Wait()
	require.LessOrEqual(t, time.Since(start), operationTimeout)
	for _, err := range results {
		if err != nil {
			require.ErrorContains(t, err, "znode not deleted after 10s, deletion goes on")
			require.Equal(t, operationTimeout, time.Since(start))
		}
	}
}

func closeClient(t *testing.T, client *recipes.Client, s *selector.LeaderSelector) {
	t.Helper()
	start := time.Now()
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() { // ends with Close; joined below
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	require.NoError(t, s.Close())
	require.Less(t, time.Since(start), operationTimeout)
}
