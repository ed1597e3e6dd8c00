package latch_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

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
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j journal
				client := testclient.Connect(t, srv, recipes.WithErrorPolicy(c.policy))
				l, term := lead(t, client, latch.WithListener(latch.Listener{
					IsLeader:  func(*recipes.Lease) { j.add("leads") },
					NotLeader: func() { j.add("ends") },
				}))
				pass(0)
				require.Equal(t, []string{"leads"}, j.read())

				srv.Disconnect()
				pass(time.Second)
				require.Equal(t, c.want, j.read())
				next := await(t, l)
				require.Len(t, srv.Children(election), 1)
				if c.cause == nil {
					require.Equal(t, term, next, "the same term, the same znode")
				} else {
					require.ErrorIs(t, ended(t, term), c.cause)
					require.Equal(t, term.FencingToken(), next.FencingToken(), "the same znode")
				}

				srv.Expire(sessionOf(client))
				pass(time.Second)
				require.Equal(t, []string{"ends", "leads"}, j.read())
				require.ErrorIs(t, ended(t, next), c.lost)
				require.Len(t, srv.Children(election), 1)
			})
		})
	}
}

// What Curator needs a circuit breaker for: a connection that comes and goes costs
// nothing as long as it comes back in time.
func TestFlappingConnectionCostsNoTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		l, term := lead(t, testclient.Connect(t, srv), latch.WithListener(j.listener("a")))
		waiting := enter(t, testclient.Connect(t, srv), latch.WithListener(j.listener("b")))
		<-waiting.Decided()
		for range 50 {
			srv.Disconnect()
			pass(time.Second)
		}
		require.Equal(t, term, await(t, l))
		require.Equal(t, []string{"a leads"}, j.read())
	})
}

// While no server runs the leader's term ends in time; after that there is one leader.
func TestNobodyLeadsWithoutAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var latches []*latch.LeaderLatch
		for range 3 {
			latches = append(latches, enter(t, testclient.Connect(t, srv)))
			<-latches[len(latches)-1].Decided()
		}
		term := await(t, latches[0])
		srv.Stop()
		require.True(t, latches[0].HasLeadership())
		pass(timeout * 2 / 3)
		require.ErrorIs(t, ended(t, term), recipes.ErrSessionLost)
		pass(time.Minute)
		require.Empty(t, leaders(latches...))
		require.NoError(t, srv.Restart())
		pass(timeout)
		require.Len(t, leaders(latches...), 1)
		require.Len(t, srv.Children(election), 3)
	})
}

// The one ahead goes while a waiter has no connection.
func TestWaiterLearnsAfterAReconnectWhatItHasMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first, _ := lead(t, testclient.Connect(t, srv))
		cutOff := testclient.Connect(t, srv)
		second := enter(t, cutOff)
		<-second.Decided()
		before := srv.Children(election)

		srv.Partition(sessionOf(cutOff))
		pass(time.Second)
		require.NoError(t, first.Close())
		pass(time.Second)
		require.False(t, second.HasLeadership())
		srv.Heal()
		term := await(t, second)
		require.Equal(t, []string{term.Path()}, paths(srv))
		require.Contains(t, before, term.Path()[len(election)+1:], "with the place that it had")
	})
}

func paths(srv *zktest.Server) []string {
	names := srv.Children(election)
	for i, name := range names {
		names[i] = election + "/" + name
	}
	return names
}

// A server that lags behind may show a node of the session before. It is the first, but
// not the latch's any more.
func TestNodeOfAnEarlierSessionNeverWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		l, term := lead(t, client)
		data, _, _ := srv.Get(term.Path())
		srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete { // it would clean up
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		srv.Expire(sessionOf(client))
		srv.Put(term.Path(), data)
		require.ErrorIs(t, ended(t, term), recipes.ErrSessionLost)
		pass(time.Minute)
		require.Contains(t, paths(srv), term.Path())
		require.False(t, l.HasLeadership())
		srv.Delete(term.Path())
		require.Greater(t, await(t, l).FencingToken(), term.FencingToken())
		require.Len(t, srv.Children(election), 1)
	})
}

// Two latches lose their znodes at the same moment, over and over.
func TestConcurrentResetsLeaveOneLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		latches := []*latch.LeaderLatch{enter(t, testclient.Connect(t, srv)), enter(t, testclient.Connect(t, srv))}
		for i := range 100 {
			for _, path := range paths(srv) {
				srv.Delete(path)
			}
			if i%3 > 0 {
				pause(time.Duration(i) * time.Millisecond)
			}
		}
		pass(timeout)
		require.Len(t, leaders(latches...), 1)
		require.Len(t, srv.Children(election), 2)
	})
}

// Sessions end at every moment of an election, also while an answer is under way: when
// it is quiet again there is one znode, and it leads.
func TestRepeatedLossLeavesOneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		for _, op := range []zktest.Op{zktest.OpCreate2, zktest.OpGetData, zktest.OpGetChildren2} {
			srv.Delay(op, 10*time.Millisecond)
		}
		client := testclient.Connect(t, srv)
		l := enter(t, client)
		for i := range 200 {
			pass(time.Duration(i%50) * time.Millisecond)
			if id := sessionOf(client); id != 0 {
				srv.Expire(id)
			}
		}
		await(t, l)
		pass(time.Second)
		require.Len(t, srv.Children(election), 1)
	})
}

// The parent goes, with everything in it, at each request of an election.
func TestWipedParentIsMadeAgain(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpCreate2, zktest.OpCreateContainer, zktest.OpGetData, zktest.OpGetChildren2} {
		t.Run(op.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var wiped atomic.Int32
				remove := srv.Inject(func(r zktest.Request) zktest.Fault {
					if r.Op == op && wiped.Add(1) <= 5 {
						srv.Delete("/services")
					}
					return zktest.Fault{}
				})
				defer remove()
				first, second := enter(t, testclient.Connect(t, srv)), enter(t, testclient.Connect(t, srv))
				pass(timeout)
				require.Len(t, leaders(first, second), 1)
				require.Len(t, srv.Children(election), 2)
				require.GreaterOrEqual(t, wiped.Load(), int32(5))
			})
		})
	}
}

// Somebody deletes the znodes of all, or the whole path, again and again: the latches
// come back by themselves, and do not run wild.
func TestDeletionStorm(t *testing.T) {
	for name, wipe := range map[string]func(srv *zktest.Server){
		"own znode": func(srv *zktest.Server) {
			for _, path := range paths(srv) {
				srv.Delete(path)
			}
		},
		"path":   func(srv *zktest.Server) { srv.Delete(election) },
		"parent": func(srv *zktest.Server) { srv.Delete("/services") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var latches []*latch.LeaderLatch
				for i := range 3 {
					latches = append(latches, enter(t, testclient.Connect(t, srv), latch.WithID(fmt.Sprint(i))))
				}
				const storms = 500
				log := srv.Observe()
				began := time.Now()
				for range storms {
					pass(10 * time.Millisecond)
					wipe(srv)
				}
				pass(3 * time.Second) // the longest pause between attempts
				require.Len(t, leaders(latches...), 1)
				require.Len(t, srv.Children(election), 3)
				perLatchAndStorm := float64(log.Count()) / storms / 3
				t.Logf("%d deletions in %v: %.1f requests for each and latch", storms, time.Since(began), perLatchAndStorm)
				require.Less(t, perLatchAndStorm, 10.0)
			})
		})
	}
}

// A policy that gives up soon is for calls that somebody waits for. A latch goes on.
func TestRetryPolicyDoesNotEndACampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv, recipes.WithOperationTimeout(time.Second),
			recipes.WithRetryPolicy(recipes.RetryPolicy{MaxAttempts: 1, MaxElapsed: time.Millisecond}))
		srv.DropReply(zktest.OpCreate2, 5)
		srv.DropRequest(zktest.OpGetChildren2, 5)
		l, term := lead(t, client)
		for range 5 {
			srv.Delete(term.Path())
			require.ErrorIs(t, ended(t, term), recipes.ErrNodeDeleted)
			term = await(t, l)
		}
		srv.Stop()
		pass(10 * time.Minute)
		require.NoError(t, srv.Restart())
		await(t, l)
		require.Len(t, srv.Children(election), 1)
	})
}
