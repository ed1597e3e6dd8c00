package latch_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestElectionBeginsOnceThereIsAServer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		srv.Stop()
		l := elections.StartLatch(t, elections.Open(t, srv))
		bubble.Pass(10 * time.Minute)
		require.False(t, l.HasLeadership())
		select {
		case <-l.Decided():
			require.FailNow(t, "nothing is decided")
		default:
		}
		require.NoError(t, srv.Restart())
		elections.Await(t, l)
	})
}

func TestCloseBeforeThereIsAServer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		srv.Stop()
		l := elections.StartLatch(t, elections.Open(t, srv))
		bubble.Pass(time.Minute)
		start := time.Now()
		require.NoError(t, l.Close())
		require.Equal(t, start, time.Now(), "nothing was sent, so there is nothing to wait for")
		require.NoError(t, srv.Restart())
		bubble.Pass(time.Minute)
		require.Empty(t, srv.Children("/services"))
	})
}

func TestStartAndCloseOutOfOrder(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		l := elections.NewLatch(t, client)
		_, err := l.Await(t.Context())
		require.ErrorIs(t, err, recipes.ErrNotStarted)
		require.ErrorContains(t, err, "latch: await /services/billing: not started")
		require.NoError(t, l.Start())
		err = l.Start()
		require.ErrorIs(t, err, recipes.ErrAlreadyStarted)
		require.ErrorContains(t, err, "latch: start /services/billing: already started")
		elections.Await(t, l)
		require.NoError(t, l.Close())
		require.ErrorIs(t, l.Start(), recipes.ErrClosed)

		never := elections.NewLatch(t, client)
		require.NoError(t, never.Close())
		require.ErrorIs(t, never.Start(), recipes.ErrClosed)
		require.False(t, never.HasLeadership())
		<-never.Decided()

		require.NoError(t, client.Close())
		require.ErrorIs(t, elections.NewLatch(t, client).Start(), recipes.ErrClosed)
		require.Empty(t, srv.Children(elections.Path))
	})
}

// phases are the states that Close may find a latch in.
var phases = map[string]func(t *testing.T, srv *zktest.Server, client *recipes.Client, l *latch.LeaderLatch){
	"before Start": func(*testing.T, *zktest.Server, *recipes.Client, *latch.LeaderLatch) {},
	"just started": func(t *testing.T, _ *zktest.Server, _ *recipes.Client, l *latch.LeaderLatch) {
		t.Helper()
		require.NoError(t, l.Start())
	},
	"just granted": func(t *testing.T, _ *zktest.Server, _ *recipes.Client, l *latch.LeaderLatch) {
		t.Helper()
		require.NoError(t, l.Start())
		elections.Await(t, l)
	},
	"leading": func(t *testing.T, _ *zktest.Server, _ *recipes.Client, l *latch.LeaderLatch) {
		t.Helper()
		require.NoError(t, l.Start())
		elections.Await(t, l)
		bubble.Pass(time.Minute)
	},
	"waiting": func(t *testing.T, _ *zktest.Server, client *recipes.Client, l *latch.LeaderLatch) {
		t.Helper()
		elections.Lead(t, client)
		require.NoError(t, l.Start())
		<-l.Decided()
		bubble.Pass(time.Minute)
	},
	"waiting without a server": func(t *testing.T, srv *zktest.Server, client *recipes.Client, l *latch.LeaderLatch) {
		t.Helper()
		elections.Lead(t, client)
		require.NoError(t, l.Start())
		<-l.Decided()
		srv.Stop()
		bubble.Pass(time.Minute)
	},
	"leading without a server": func(t *testing.T, srv *zktest.Server, _ *recipes.Client, l *latch.LeaderLatch) {
		t.Helper()
		require.NoError(t, l.Start())
		elections.Await(t, l)
		srv.Stop()
		bubble.Pass(time.Second)
	},
	"leading, server silent": func(t *testing.T, srv *zktest.Server, _ *recipes.Client, l *latch.LeaderLatch) {
		t.Helper()
		require.NoError(t, l.Start())
		elections.Await(t, l)
		srv.Freeze()
		bubble.Pass(time.Second)
	},
	"rejoining after expiry": func(t *testing.T, srv *zktest.Server, client *recipes.Client, l *latch.LeaderLatch) {
		t.Helper()
		require.NoError(t, l.Start())
		term := elections.Await(t, l)
		srv.Delay(zktest.OpCreate2, time.Second)
		srv.Expire(elections.SessionOf(client))
		<-term.Context().Done()
		bubble.Pass(100 * time.Millisecond)
	},
	"rejoining after the loss of its znode": func(t *testing.T, srv *zktest.Server, _ *recipes.Client, l *latch.LeaderLatch) {
		t.Helper()
		require.NoError(t, l.Start())
		term := elections.Await(t, l)
		srv.Delay(zktest.OpGetChildren2, time.Second)
		srv.Delete(term.Path())
		<-term.Context().Done()
		bubble.Pass(100 * time.Millisecond)
	},
	"create not sent yet": creating(func(srv *zktest.Server) { srv.Partition() }),
	"create lost":         creating(func(srv *zktest.Server) { srv.DropRequest(zktest.OpCreate2, 3) }),
	"create's answer lost": creating(func(srv *zktest.Server) {
		srv.DropReply(zktest.OpCreate2, 3)
	}),
	"create's answer delayed":       creating(func(srv *zktest.Server) { srv.Delay(zktest.OpCreate2, time.Second) }),
	"create's answer long delayed":  creating(func(srv *zktest.Server) { srv.Delay(zktest.OpCreate2, 5*time.Second) }),
	"create without an answer":      creating(func(srv *zktest.Server) { srv.Isolate() }),
	"parent's create delayed":       creating(func(srv *zktest.Server) { srv.Delay(zktest.OpCreateContainer, time.Second) }),
	"parent's create answer lost":   creating(func(srv *zktest.Server) { srv.DropReply(zktest.OpCreateContainer, 3) }),
	"first look at the queue slow":  creating(func(srv *zktest.Server) { srv.Delay(zktest.OpGetChildren2, time.Second) }),
	"first look at the queue lost":  creating(func(srv *zktest.Server) { srv.DropReply(zktest.OpGetChildren2, 3) }),
	"expiry at the create":          creating(expireAt(zktest.OpCreate2)),
	"expiry at the look at a queue": creating(expireAt(zktest.OpGetChildren2)),
}

// creating is the phase in which a fault has met the first requests.
func creating(fault func(srv *zktest.Server)) func(*testing.T, *zktest.Server, *recipes.Client, *latch.LeaderLatch) {
	return func(t *testing.T, srv *zktest.Server, _ *recipes.Client, l *latch.LeaderLatch) {
		t.Helper()
		fault(srv)
		require.NoError(t, l.Start())
		bubble.Pass(100 * time.Millisecond)
	}
}

func expireAt(op zktest.Op) func(srv *zktest.Server) {
	return func(srv *zktest.Server) {
		var once sync.Once
		srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == op {
				once.Do(func() { srv.Expire(r.Session) })
			}
			return zktest.Fault{}
		})
	}
}

// Close returns in time in every phase, called once, again, and several times at once,
// and leaves nothing on the server; nor does the client, in the same phases.
func TestCloseInEveryPhase(t *testing.T) {
	for phase, reach := range phases {
		for how, end := range map[string]func(t *testing.T, client *recipes.Client, l *latch.LeaderLatch){
			"latch":  closeLatch,
			"client": closeClient,
		} {
			t.Run(fmt.Sprintf("%s/%s", phase, how), func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T) {
					srv := zktest.NewServer(t)
					client := testclient.Connect(t, srv)
					l := elections.NewLatch(t, client, latch.WithCloseMode(latch.NotifyLeader), latch.WithStepDownGrace(elections.Grace))
					reach(t, srv, client, l)
					end(t, client, l)
					require.False(t, l.HasLeadership())
					_, err := l.Await(t.Context())
					require.ErrorIs(t, err, recipes.ErrClosed)

					srv.Heal()
					require.NoError(t, srv.Restart())
					bubble.Pass(2 * elections.Timeout)
					require.NoError(t, l.Close())
					require.NoError(t, client.Close())
					bubble.Pass(2 * elections.Timeout)
					require.Empty(t, srv.Children(elections.Path))
					require.Empty(t, srv.Sessions())
				})
			})
		}
	}
}

// closeLatch closes a latch three times at once. Without an answer, Close may report that after an operation timeout.
func closeLatch(t *testing.T, _ *recipes.Client, l *latch.LeaderLatch) {
	t.Helper()
	start := time.Now()
	results := make([]error, 3)
	var group sync.WaitGroup
	for i := range results {
		group.Go(func() { results[i] = l.Close() }) // ends with Close; joined below
	}
	group.Wait()
	require.LessOrEqual(t, time.Since(start), elections.OperationTimeout)
	for _, err := range results {
		require.Equal(t, results[0], err)
		if err != nil {
			require.ErrorContains(t, err, "znode not deleted after 10s, still retrying")
			require.Equal(t, elections.OperationTimeout, time.Since(start))
		}
	}
}

func closeClient(t *testing.T, client *recipes.Client, l *latch.LeaderLatch) {
	t.Helper()
	start := time.Now()
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() { // ends with Close; joined below
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	require.NoError(t, l.Close())
	require.Less(t, time.Since(start), elections.OperationTimeout)
}
