package session_test

import (
	"fmt"
	"sync/atomic"
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

// Curator's default policy ends a term at each lost connection, ours at a lost session.
func TestErrorPolicies(t *testing.T) {
	for name, c := range map[string]struct {
		policy recipes.ErrorPolicy
		cause  error // of a term's end at a disconnect
		want   []string
		lost   error // of its end with the session, which is a disconnect first
	}{
		"session policy":  {recipes.SessionErrorPolicy, nil, nil, recipes.ErrSessionLost},
		"standard policy": {recipes.StandardErrorPolicy, recipes.ErrSuspended, []string{"ends", "leads"}, recipes.ErrSuspended},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j elections.Journal
				client := testclient.Connect(t, srv, recipes.WithErrorPolicy(c.policy))
				l, term := elections.Lead(t, client, latch.WithListener(latch.Listener{
					IsLeader:  func(*recipes.Lease) { j.Add("leads") },
					NotLeader: func() { j.Add("ends") },
				}))
				bubble.Pass(0)
				require.Equal(t, []string{"leads"}, j.Read())

				srv.Disconnect()
				bubble.Pass(time.Second)
				require.Equal(t, c.want, j.Read())
				next := elections.Await(t, l)
				require.Len(t, srv.Children(elections.Path), 1)
				if c.cause == nil {
					require.Equal(t, term, next, "the same term, the same znode")
				} else {
					require.ErrorIs(t, bubble.Cause(t, term), c.cause)
					require.Equal(t, term.FencingToken(), next.FencingToken(), "the same znode")
				}

				srv.Expire(elections.SessionOf(client))
				bubble.Pass(time.Second)
				require.Equal(t, []string{"ends", "leads"}, j.Read())
				require.ErrorIs(t, bubble.Cause(t, next), c.lost)
				require.Len(t, srv.Children(elections.Path), 1)
			})
		})
	}
}

// A flapping connection costs nothing as long as it is restored in time. Curator needs a circuit breaker for this.
func TestFlappingConnectionCostsNoTerm(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j elections.Journal
		l, term := elections.Lead(t, testclient.Connect(t, srv), latch.WithListener(j.Listener("a")))
		waiting := elections.StartLatch(t, testclient.Connect(t, srv), latch.WithListener(j.Listener("b")))
		<-waiting.Decided()
		for range 50 {
			srv.Disconnect()
			bubble.Pass(time.Second)
		}
		require.Equal(t, term, elections.Await(t, l))
		require.Equal(t, []string{"a leads"}, j.Read())
	})
}

// Without a running server the leader's term ends in time. After that there is one leader.
func TestNoLeaderWithoutAServer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var latches []*latch.LeaderLatch
		for range 3 {
			latches = append(latches, elections.StartLatch(t, testclient.Connect(t, srv)))
			<-latches[len(latches)-1].Decided()
		}
		term := elections.Await(t, latches[0])
		srv.Stop()
		require.True(t, latches[0].HasLeadership())
		bubble.Pass(elections.Timeout * 2 / 3)
		require.ErrorIs(t, bubble.Cause(t, term), recipes.ErrSessionLost)
		bubble.Pass(time.Minute)
		require.Empty(t, elections.Leaders(latches...))
		require.NoError(t, srv.Restart())
		bubble.Pass(elections.Timeout)
		require.Len(t, elections.Leaders(latches...), 1)
		require.Len(t, srv.Children(elections.Path), 3)
	})
}

// The predecessor is deleted while a waiter has no connection.
func TestWaiterLearnsAfterAReconnectWhatItHasMissed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first, _ := elections.Lead(t, testclient.Connect(t, srv))
		cutOff := testclient.Connect(t, srv)
		second := elections.StartLatch(t, cutOff)
		<-second.Decided()
		before := srv.Children(elections.Path)

		srv.Partition(elections.SessionOf(cutOff))
		bubble.Pass(time.Second)
		require.NoError(t, first.Close())
		bubble.Pass(time.Second)
		require.False(t, second.HasLeadership())
		srv.Heal()
		term := elections.Await(t, second)
		require.Equal(t, []string{term.Path()}, elections.Paths(srv))
		require.Contains(t, before, term.Path()[len(elections.Path)+1:], "with the place that it had")
	})
}

// A server that lags behind may show a node of the session before. It is the first, but
// not the latch's any more.
func TestNodeOfAnEarlierSessionNeverWins(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		l, term := elections.Lead(t, client)
		data, _, _ := srv.Get(term.Path())
		srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete { // it would clean up
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		connectAtOnce := srv.Delay(zktest.OpConnect, bubble.Moment) // otherwise the latch may join before the znode is there
		srv.Expire(elections.SessionOf(client))
		srv.Put(term.Path(), data)
		connectAtOnce()
		require.ErrorIs(t, bubble.Cause(t, term), recipes.ErrSessionLost)
		bubble.Pass(time.Minute)
		require.Contains(t, elections.Paths(srv), term.Path())
		require.False(t, l.HasLeadership())
		srv.Delete(term.Path())
		require.Greater(t, elections.Await(t, l).FencingToken(), term.FencingToken())
		require.Len(t, srv.Children(elections.Path), 1)
	})
}

// Two latches lose their znodes at the same moment, over and over.
func TestConcurrentResetsLeaveOneLeader(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		latches := []*latch.LeaderLatch{elections.StartLatch(t, testclient.Connect(t, srv)), elections.StartLatch(t, testclient.Connect(t, srv))}
		for i := range 100 {
			for _, path := range elections.Paths(srv) {
				srv.Delete(path)
			}
			if i%3 > 0 {
				bubble.Pause(time.Duration(i) * time.Millisecond)
			}
		}
		bubble.Pass(elections.Timeout)
		require.Len(t, elections.Leaders(latches...), 1)
		require.Len(t, srv.Children(elections.Path), 2)
	})
}

// Sessions end at every moment of an election, also during an answer. Afterwards there is one znode, and it leads.
func TestRepeatedLossLeavesOneNode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		for _, op := range []zktest.Op{zktest.OpCreate2, zktest.OpGetData, zktest.OpGetChildren2} {
			srv.Delay(op, 10*time.Millisecond)
		}
		client := testclient.Connect(t, srv)
		l := elections.StartLatch(t, client)
		for i := range 200 {
			bubble.Pass(time.Duration(i%50) * time.Millisecond)
			if id := elections.SessionOf(client); id != 0 {
				srv.Expire(id)
			}
		}
		elections.Await(t, l)
		bubble.Pass(time.Second)
		require.Len(t, srv.Children(elections.Path), 1)
	})
}

// The parent is deleted, with all its children, at each request of an election.
func TestWipedParentIsMadeAgain(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpCreate2, zktest.OpCreateContainer, zktest.OpGetData, zktest.OpGetChildren2} {
		t.Run(op.String(), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var wiped atomic.Int32
				remove := srv.Inject(func(r zktest.Request) zktest.Fault {
					if r.Op == op && wiped.Add(1) <= 5 {
						srv.Delete("/services")
					}
					return zktest.Fault{}
				})
				defer remove()
				first, second := elections.StartLatch(t, testclient.Connect(t, srv)), elections.StartLatch(t, testclient.Connect(t, srv))
				bubble.Pass(elections.Timeout)
				require.Len(t, elections.Leaders(first, second), 1)
				require.Len(t, srv.Children(elections.Path), 2)
				require.GreaterOrEqual(t, wiped.Load(), int32(5))
			})
		})
	}
}

// Another client deletes all znodes, or the whole path, again and again. The latches join again by themselves,
// without a hot loop.
func TestDeletionStorm(t *testing.T) {
	for name, wipe := range map[string]func(srv *zktest.Server){
		"own znode": func(srv *zktest.Server) {
			for _, path := range elections.Paths(srv) {
				srv.Delete(path)
			}
		},
		"path":   func(srv *zktest.Server) { srv.Delete(elections.Path) },
		"parent": func(srv *zktest.Server) { srv.Delete("/services") },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var latches []*latch.LeaderLatch
				for i := range 3 {
					latches = append(latches, elections.StartLatch(t, testclient.Connect(t, srv), latch.WithID(fmt.Sprint(i))))
				}
				const storms = 500
				log := srv.Observe()
				began := time.Now()
				for range storms {
					bubble.Pass(10 * time.Millisecond)
					wipe(srv)
				}
				bubble.Pass(3 * time.Second) // the longest pause between attempts
				require.Len(t, elections.Leaders(latches...), 1)
				require.Len(t, srv.Children(elections.Path), 3)
				perLatchAndStorm := float64(log.Count()) / storms / 3
				t.Logf("%d deletions in %v: %.1f requests for each and latch", storms, time.Since(began), perLatchAndStorm)
				require.Less(t, perLatchAndStorm, 10.0)
			})
		})
	}
}

// A policy that gives up soon applies to calls with a waiting caller. A latch continues.
func TestRetryPolicyDoesNotEndACampaign(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv, recipes.WithOperationTimeout(time.Second),
			recipes.WithRetryPolicy(recipes.RetryPolicy{MaxAttempts: 1, MaxElapsed: time.Millisecond}))
		srv.DropReply(zktest.OpCreate2, 5)
		srv.DropRequest(zktest.OpGetChildren2, 5)
		l, term := elections.Lead(t, client)
		for range 5 {
			srv.Delete(term.Path())
			require.ErrorIs(t, bubble.Cause(t, term), recipes.ErrNodeDeleted)
			term = elections.Await(t, l)
		}
		srv.Stop()
		bubble.Pass(10 * time.Minute)
		require.NoError(t, srv.Restart())
		elections.Await(t, l)
		require.Len(t, srv.Children(elections.Path), 1)
	})
}
