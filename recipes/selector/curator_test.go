package selector_test

// The cases of Curator's TestLeaderSelector and related tests. docs/evidence/curator-cases.md maps them.

import (
	"context"
	"fmt"
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

func TestLeadershipRotates(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j elections.Journal
		var token int64
		client := testclient.ConnectSettled(t, srv)
		for i := range 5 {
			elections.StartSelector(t, client, func(_ context.Context, term *recipes.Lease) error {
				if term.FencingToken() <= token {
					t.Errorf("token %d after %d", term.FencingToken(), token)
				}
				token = term.FencingToken()
				j.Add("%d", i)
				bubble.Pause(time.Second)
				return nil
			}, selector.WithAutoRequeue())
		}
		bubble.Pass(19500 * time.Millisecond)
		var want []string
		for n := range 20 {
			want = append(want, fmt.Sprint(n%5))
		}
		require.Equal(t, want, j.ReadSettled())
	})
}

func TestParticipantsAreTheSameForAll(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var selectors []*selector.LeaderSelector
		var want []string
		for i := range 5 {
			want = append(want, fmt.Sprint(i))
			selectors = append(selectors, elections.StartSelector(t, testclient.ConnectSettled(t, srv), elections.Idle, selector.WithID(want[i])))
		}
		outsider := elections.NewSelector(t, testclient.ConnectSettled(t, srv), elections.Idle)
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
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		s := elections.NewSelector(t, testclient.ConnectSettled(t, srv), elections.Idle)
		leader, err := s.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, recipes.Participant{}, leader)
		queue, err := s.Participants(t.Context())
		require.NoError(t, err)
		require.Empty(t, queue)
	})
}

// A waiting candidate leaves without a trace, and so does the leader with all its znodes.
func TestClosingAWaiterThenTheLeader(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j elections.Journal
		leader := elections.StartSelector(t, testclient.ConnectSettled(t, srv), j.Leader("a"))
		waiter := elections.StartSelector(t, testclient.ConnectSettled(t, srv), j.Leader("b"))
		require.NoError(t, waiter.Close())
		require.Len(t, srv.Children(elections.Path), 1)
		require.True(t, leader.HasLeadership())
		require.NoError(t, leader.Close())
		require.False(t, leader.HasLeadership())
		require.Empty(t, srv.Children(elections.Path))
		require.Equal(t, []string{"a leads", "a ends: released"}, j.ReadSettled())
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
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j elections.Journal
				a := elections.NewSelector(t, testclient.ConnectSettled(t, srv), j.Leader("a"), c.opts...)
				a.InterruptLeadership()
				require.NoError(t, a.Start())
				require.Equal(t, []string{"a leads"}, j.ReadSettled())
				b := elections.StartSelector(t, testclient.ConnectSettled(t, srv), j.Leader("b"), c.opts...)
				b.InterruptLeadership()
				require.Empty(t, j.ReadSettled(), "who does not lead can't be interrupted")

				bubble.Pass(2 * time.Second) // after a shorter term there is a pause
				a.InterruptLeadership()
				a.InterruptLeadership()
				require.Equal(t, []string{"a ends: released", "b leads"}, j.ReadSettled())
				bubble.Pass(2 * time.Second)
				b.InterruptLeadership()
				if !c.again {
					require.Equal(t, []string{"b ends: released"}, j.ReadSettled())
					require.Empty(t, srv.Children(elections.Path))
					return
				}
				require.Equal(t, []string{"b ends: released", "a leads"}, j.ReadSettled())
				require.Len(t, srv.Children(elections.Path), 2)
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
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j elections.Journal
				client := testclient.ConnectSettled(t, srv, recipes.WithErrorPolicy(c.policy))
				elections.StartSelector(t, client, j.Leader("a"), selector.WithAutoRequeue())
				require.Equal(t, []string{"a leads"}, j.ReadSettled())
				bubble.Pass(2 * time.Second) // after a shorter term there is a pause
				srv.Disconnect()
				bubble.Pass(2 * time.Second)
				require.Equal(t, c.want, j.ReadSettled())
				srv.Expire(elections.SessionOf(client))
				bubble.Pass(time.Second)
				require.Equal(t, []string{c.lost, "a leads"}, j.ReadSettled())
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
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j elections.Journal
				leader := elections.StartSelector(t, testclient.ConnectSettled(t, srv), j.Leader("a"))
				client := testclient.ConnectSettled(t, srv, recipes.WithErrorPolicy(policy))
				elections.StartSelector(t, client, j.Leader("b"))
				before := srv.Children(elections.Path)
				for range 5 {
					srv.Disconnect(elections.SessionOf(client))
					bubble.Pass(time.Second)
				}
				require.Equal(t, before, srv.Children(elections.Path))
				require.NoError(t, leader.Close())
				require.Equal(t, []string{"a leads", "a ends: released", "b leads"}, j.ReadSettled())
			})
		})
	}
}

// The leader is interrupted by a lost connection, and its server is away for longer. Its znode is deleted with its
// session, and the selector joins again.
func TestNodeIsDeletedAfterAnOutage(t *testing.T) {
	for name, outage := range map[string]time.Duration{"short": elections.Timeout / 2, "long": time.Minute} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j elections.Journal
				elections.StartSelector(t, testclient.ConnectSettled(t, srv, recipes.WithErrorPolicy(recipes.StandardErrorPolicy)), j.Leader("a"), selector.WithAutoRequeue())
				before := srv.Children(elections.Path)
				srv.Stop()
				bubble.Pass(outage)
				require.NoError(t, srv.Restart())
				bubble.Pass(elections.Timeout)
				require.Equal(t, []string{"a leads", "a ends: connection suspended", "a leads"}, j.ReadSettled())
				require.Len(t, srv.Children(elections.Path), 1)
				require.NotEqual(t, before, srv.Children(elections.Path))
			})
		})
	}
}

// A selector with a lost session joins the election again on request. Without its server, closing it lets another one
// lead.
func TestRequeueAfterALoss(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j elections.Journal
		client := testclient.ConnectSettled(t, srv)
		s := elections.StartSelector(t, client, j.Leader("a"))
		for range 3 {
			srv.Expire(elections.SessionOf(client))
			bubble.Pass(time.Second)
			require.Equal(t, []string{"a leads", "a ends: session lost"}, j.ReadSettled())
			require.Empty(t, srv.Children(elections.Path))
			require.True(t, s.Requeue())
			bubble.Pass(time.Second)
		}
		srv.Stop()
		bubble.Pass(elections.Timeout)
		require.NoError(t, srv.Restart())
		bubble.Pass(elections.Timeout)
		require.Equal(t, []string{"a leads", "a ends: session lost"}, j.ReadSettled())
		require.NoError(t, s.Close())
		elections.StartSelector(t, client, j.Leader("b"))
		require.Equal(t, []string{"b leads"}, j.ReadSettled())
	})
}

// The server executes a create, and its answer is lost with the connection, again and again. One znode exists in the
// end, and none after Close.
func TestServerDropsTheConnectionAtEachCreate(t *testing.T) {
	for name, opts := range map[string][]recipes.Option{
		"retries":  nil,
		"no retry": {recipes.WithRetryPolicy(recipes.RetryPolicy{MaxAttempts: 1})},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j elections.Journal
				srv.Put(elections.Path, nil)
				srv.DropReply(zktest.OpCreate2, 10)
				s := elections.StartSelector(t, testclient.ConnectSettled(t, srv, opts...), j.Leader("a"))
				bubble.Pass(time.Minute)
				require.Equal(t, []string{"a leads"}, j.ReadSettled())
				require.Len(t, srv.Children(elections.Path), 1)
				require.NoError(t, s.Close())
				require.Empty(t, srv.Children(elections.Path))
			})
		})
	}
}
