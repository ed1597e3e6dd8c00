package selector_test

// The cases of Curator's TestLeaderSelector and its companions; docs/curator-cases.md
// maps one to the other.

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestLeadershipRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		var token int64
		client := testclient.ConnectSettled(t, srv)
		for i := range 5 {
			enter(t, client, func(_ context.Context, term *recipes.Lease) error {
				if term.FencingToken() <= token {
					t.Errorf("token %d after %d", term.FencingToken(), token)
				}
				token = term.FencingToken()
				j.add("%d", i)
				pause(time.Second)
				return nil
			}, selector.WithAutoRequeue())
		}
		pass(19500 * time.Millisecond)
		var want []string
		for n := range 20 {
			want = append(want, fmt.Sprint(n%5))
		}
		require.Equal(t, want, j.read())
	})
}

func TestParticipantsAreTheSameForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var selectors []*selector.LeaderSelector
		var want []string
		for i := range 5 {
			want = append(want, fmt.Sprint(i))
			selectors = append(selectors, enter(t, testclient.ConnectSettled(t, srv), idle, selector.WithID(want[i])))
		}
		outsider := create(t, testclient.ConnectSettled(t, srv), idle)
		for _, s := range append(selectors, outsider) {
			queue, err := s.Participants(t.Context())
			require.NoError(t, err)
			var ids []string
			for i, p := range queue {
				require.Equal(t, i == 0, p.Leader)
				ids = append(ids, p.ID)
			}
			require.Equal(t, want, ids)
			leader, err := s.Leader(t.Context())
			require.NoError(t, err)
			require.Equal(t, queue[0], leader)
			require.Equal(t, s == selectors[0], s.HasLeadership())
		}
	})
}

func TestLeaderOfAPathThatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		s := create(t, testclient.ConnectSettled(t, srv), idle)
		leader, err := s.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, recipes.Participant{}, leader)
		queue, err := s.Participants(t.Context())
		require.NoError(t, err)
		require.Empty(t, queue)
	})
}

// One that waits leaves without a trace, the leader with all that it has.
func TestClosingAWaiterThenTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		leader := enter(t, testclient.ConnectSettled(t, srv), j.leader("a"))
		waiter := enter(t, testclient.ConnectSettled(t, srv), j.leader("b"))
		require.NoError(t, waiter.Close())
		require.Len(t, srv.Children(election), 1)
		require.True(t, leader.HasLeadership())
		require.NoError(t, leader.Close())
		require.False(t, leader.HasLeadership())
		require.Empty(t, srv.Children(election))
		require.Equal(t, []string{"a leads", "a ends: released"}, j.read())
	})
}

func TestInterruptLeadership(t *testing.T) {
	for name, c := range map[string]struct {
		opts  []selector.Option
		again bool
	}{
		"once": {nil, false}, "with requeue": {[]selector.Option{selector.WithAutoRequeue()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j journal
				a := create(t, testclient.ConnectSettled(t, srv), j.leader("a"), c.opts...)
				a.InterruptLeadership()
				require.NoError(t, a.Start())
				require.Equal(t, []string{"a leads"}, j.read())
				b := enter(t, testclient.ConnectSettled(t, srv), j.leader("b"), c.opts...)
				b.InterruptLeadership()
				require.Empty(t, j.read(), "who does not lead can't be interrupted")

				pass(2 * time.Second) // after a shorter term there is a pause
				a.InterruptLeadership()
				a.InterruptLeadership()
				require.Equal(t, []string{"a ends: released", "b leads"}, j.read())
				pass(2 * time.Second)
				b.InterruptLeadership()
				if !c.again {
					require.Equal(t, []string{"b ends: released"}, j.read())
					require.Empty(t, srv.Children(election))
					return
				}
				require.Equal(t, []string{"b ends: released", "a leads"}, j.read())
				require.Len(t, srv.Children(election), 2)
			})
		})
	}
}

func TestErrorPolicies(t *testing.T) {
	for name, c := range map[string]struct {
		policy recipes.ErrorPolicy
		want   []string // at a disconnect
		lost   string   // why it ends with the session, which is a disconnect first
	}{
		"session policy":  {recipes.SessionErrorPolicy, nil, "a ends: session lost"},
		"standard policy": {recipes.StandardErrorPolicy, []string{"a ends: connection suspended", "a leads"}, "a ends: connection suspended"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j journal
				client := testclient.ConnectSettled(t, srv, recipes.WithErrorPolicy(c.policy))
				enter(t, client, j.leader("a"), selector.WithAutoRequeue())
				require.Equal(t, []string{"a leads"}, j.read())
				pass(2 * time.Second) // after a shorter term there is a pause
				srv.Disconnect()
				pass(2 * time.Second)
				require.Equal(t, c.want, j.read())
				srv.Expire(sessionOf(client))
				pass(time.Second)
				require.Equal(t, []string{c.lost, "a leads"}, j.read())
			})
		})
	}
}

// In Curator a participant that only waits leaves for good at a disconnect.
func TestWaiterKeepsItsPlaceOverADisconnect(t *testing.T) {
	for name, policy := range map[string]recipes.ErrorPolicy{
		"session policy": recipes.SessionErrorPolicy, "standard policy": recipes.StandardErrorPolicy,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j journal
				leader := enter(t, testclient.ConnectSettled(t, srv), j.leader("a"))
				client := testclient.ConnectSettled(t, srv, recipes.WithErrorPolicy(policy))
				enter(t, client, j.leader("b"))
				before := srv.Children(election)
				for range 5 {
					srv.Disconnect(sessionOf(client))
					pass(time.Second)
				}
				require.Equal(t, before, srv.Children(election))
				require.NoError(t, leader.Close())
				require.Equal(t, []string{"a leads", "a ends: released", "b leads"}, j.read())
			})
		})
	}
}

// The leader is interrupted for a lost connection, and its server is away for longer: its
// znode goes with its session, and it comes back.
func TestNodeIsGoneAfterAnOutage(t *testing.T) {
	for name, outage := range map[string]time.Duration{"short": timeout / 2, "long": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j journal
				enter(t, testclient.ConnectSettled(t, srv, recipes.WithErrorPolicy(recipes.StandardErrorPolicy)), j.leader("a"), selector.WithAutoRequeue())
				before := srv.Children(election)
				srv.Stop()
				pass(outage)
				require.NoError(t, srv.Restart())
				pass(timeout)
				require.Equal(t, []string{"a leads", "a ends: connection suspended", "a leads"}, j.read())
				require.Len(t, srv.Children(election), 1)
				require.NotEqual(t, before, srv.Children(election))
			})
		})
	}
}

// A selector whose session was lost stands for election again when it is asked to; and
// with its server gone, closing it lets another lead.
func TestRequeueAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		client := testclient.ConnectSettled(t, srv)
		s := enter(t, client, j.leader("a"))
		for range 3 {
			srv.Expire(sessionOf(client))
			pass(time.Second)
			require.Equal(t, []string{"a leads", "a ends: session lost"}, j.read())
			require.Empty(t, srv.Children(election))
			require.True(t, s.Requeue())
			pass(time.Second)
		}
		srv.Stop()
		pass(timeout)
		require.NoError(t, srv.Restart())
		pass(timeout)
		require.Equal(t, []string{"a leads", "a ends: session lost"}, j.read())
		require.NoError(t, s.Close())
		enter(t, client, j.leader("b"))
		require.Equal(t, []string{"b leads"}, j.read())
	})
}

// The server executes a create, and its answer is lost with the connection, again and
// again: one znode is there in the end, and none after Close.
func TestServerDropsTheConnectionAtEachCreate(t *testing.T) {
	for name, opts := range map[string][]recipes.Option{
		"retries":  nil,
		"no retry": {recipes.WithRetryPolicy(recipes.RetryPolicy{MaxAttempts: 1})},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j journal
				srv.Put(election, nil)
				srv.DropReply(zktest.OpCreate2, 10)
				s := enter(t, testclient.ConnectSettled(t, srv, opts...), j.leader("a"))
				pass(time.Minute)
				require.Equal(t, []string{"a leads"}, j.read())
				require.Len(t, srv.Children(election), 1)
				require.NoError(t, s.Close())
				require.Empty(t, srv.Children(election))
			})
		})
	}
}
