package session_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A selector started without a server survives each outage, although its background work fails. Each change of the
// connection is reported once, and each session has its term.
func TestStatesAndTermsOverOutages(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		srv.Stop()
		var states, terms elections.Journal
		client := elections.Open(t, srv, recipes.WithSessionTimeout(elections.Timeout))
		changes, stop := client.Subscribe()
		defer stop()
		go func() { // ends with the subscription
			for state := range changes {
				states.Add("%v", state)
			}
		}()
		s := elections.StartSelector(t, client, terms.Leader("a"), selector.WithAutoRequeue())
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"suspended"}, states.ReadSettled())

		require.NoError(t, srv.Restart())
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"connected"}, states.ReadSettled())
		require.Equal(t, []string{"a leads"}, terms.ReadSettled())
		for range 2 {
			srv.Stop()
			bubble.Pass(time.Minute)
			require.Equal(t, []string{"suspended", "lost"}, states.ReadSettled())
			require.Equal(t, []string{"a ends: session lost"}, terms.ReadSettled())
			require.NoError(t, srv.Restart())
			bubble.Pass(time.Minute)
			require.Equal(t, []string{"reconnected"}, states.ReadSettled())
			require.Equal(t, []string{"a leads"}, terms.ReadSettled())
			require.Len(t, srv.Children(elections.Path), 1)
		}
		require.NoError(t, s.Close())
		require.Empty(t, srv.Children(elections.Path))
	})
}

func TestElectionBeginsOnceThereIsAServer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		srv.Stop()
		var j elections.Journal
		early := elections.StartSelector(t, elections.Open(t, srv), j.Leader("closed"))
		late := elections.StartSelector(t, elections.Open(t, srv), j.Leader("a"))
		bubble.Pass(10 * time.Minute)
		require.Empty(t, j.ReadSettled())
		start := time.Now()
		require.NoError(t, early.Close())
		require.Equal(t, start, time.Now(), "nothing was sent, so there is nothing to wait for")
		require.NoError(t, srv.Restart())
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"a leads"}, j.ReadSettled())
		require.Len(t, srv.Children(elections.Path), 1)
		require.NoError(t, late.Close())
	})
}

func TestStartAndCloseOutOfOrder(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.ConnectSettled(t, srv)
		s := elections.StartSelector(t, client, elections.Idle)
		require.ErrorContains(t, s.Start(), "selector: start /services/billing: already started")
		require.NoError(t, s.Close())
		require.ErrorIs(t, s.Start(), recipes.ErrClosed)

		never := elections.NewSelector(t, client, elections.Idle)
		require.NoError(t, never.Close())
		require.ErrorIs(t, never.Start(), recipes.ErrClosed)
		require.ErrorIs(t, never.Run(t.Context()), recipes.ErrClosed)
		require.False(t, never.HasLeadership())

		require.NoError(t, client.Close())
		require.ErrorIs(t, elections.NewSelector(t, client, elections.Idle).Start(), recipes.ErrClosed)
		require.Empty(t, srv.Children(elections.Path))
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

// works are the activities of a leader at the time of Close: its term, or a pause after a failure.
var works = map[string]selector.TakeLeadership{
	"leads": elections.Idle,
	"fails": func(context.Context, *recipes.Lease) error { return elections.ErrWork },
}

// A fault meets the n-th request, for each n. Close is called a moment later, twice at once. It returns in time, and
// leaves nothing on the server, and so does Client.Close.
func TestCloseInEveryPhase(t *testing.T) {
	for fault, strike := range faults {
		for work, take := range works {
			for how, end := range map[string]func(*testing.T, *recipes.Client, *selector.LeaderSelector){
				"selector": closeSelector, "client": closeClient,
			} {
				t.Run(fmt.Sprintf("%s/%s/%s", fault, work, how), func(t *testing.T) {
					for n := 1; n <= 8; n += testkit.Shorter(1, 3) {
						testkit.Bubble(t, func(t *testing.T) {
							srv := zktest.NewServer(t)
							client := testclient.ConnectSettled(t, srv)
							s := elections.NewSelector(t, client, take, selector.WithAutoRequeue(), selector.WithErrorHandler(elections.Discard))
							strikeAt(srv, n, strike)
							require.NoError(t, s.Start())
							bubble.Pass(time.Duration(n%3) * 500 * time.Millisecond)
							end(t, client, s)
							require.False(t, s.HasLeadership())

							srv.Heal()
							require.NoError(t, srv.Restart())
							bubble.Pass(2 * elections.Timeout)
							require.NoError(t, s.Close())
							require.NoError(t, client.Close())
							require.Empty(t, srv.Children(elections.Path), "request %d", n)
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

// closeSelector closes a selector. Without an answer, Close may report that after an operation timeout.
func closeSelector(t *testing.T, _ *recipes.Client, s *selector.LeaderSelector) {
	t.Helper()
	start := time.Now()
	results := make([]error, 2)
	var group sync.WaitGroup
	for i := range results {
		group.Go(func() { results[i] = s.Close() }) // ends with Close; joined below
	}
	group.Wait()
	require.LessOrEqual(t, time.Since(start), elections.OperationTimeout)
	for _, err := range results {
		if err != nil {
			require.ErrorContains(t, err, "znode not deleted after 10s, still retrying")
			require.Equal(t, elections.OperationTimeout, time.Since(start))
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
	require.Less(t, time.Since(start), elections.OperationTimeout)
}
