package election_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// Candidates lead in the order of arrival. A leader that steps down joins again at the tail.
func TestLeadershipRotates(t *testing.T) {
	eachRecipe(t, func(t *testing.T, r recipe) {
		t.Helper()
		path, conn := testkit.Path(t), observer(t)
		var members []*member
		for i := range 3 {
			members = append(members, r.enter(t, direct(t), path, fmt.Sprint(i)))
			testkit.Eventually(t, func() bool { return len(children(t, conn, path)) == i+1 }, "the znode")
		}
		token := int64(0)
		for round := range 7 {
			leader := members[round%3]
			lease := leader.lead(t)
			require.True(t, leader.HasLeadership())
			require.Greater(t, lease.FencingToken(), token)
			token = lease.FencingToken()
			for i := 1; i < 3; i++ {
				members[(round+i)%3].follows(t)
			}
			want := []string{fmt.Sprint(round % 3), fmt.Sprint((round + 1) % 3), fmt.Sprint((round + 2) % 3)}
			testkit.Eventually(t, func() bool { return len(children(t, conn, path)) == 3 }, "all three")
			for _, m := range members {
				require.Equal(t, want, ids(t, m))
				first, err := m.Leader(t.Context())
				require.NoError(t, err)
				requireLeader(t, leader.id, lease, first)
			}
			require.NoError(t, lease.Release())
			require.ErrorIs(t, context.Cause(lease.Context()), recipes.ErrReleased)
		}
		for _, m := range members {
			require.NoError(t, m.Close())
			require.False(t, m.HasLeadership())
		}
		require.Empty(t, children(t, conn, path))
	})
}

// The znodes are Curator's, and the token is the czxid.
func TestZnodes(t *testing.T) {
	eachRecipe(t, func(t *testing.T, r recipe) {
		t.Helper()
		path, conn, client := testkit.Path(t)+"/nested", observer(t), direct(t)
		lease := r.enter(t, client, path, "the id").lead(t)
		data, stat, err := conn.Get(lease.Path())
		require.NoError(t, err)
		require.Equal(t, "the id", string(data))
		require.Equal(t, client.Conn().SessionID(), stat.EphemeralOwner)
		require.Equal(t, stat.Czxid, lease.FencingToken())
		uuid := `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`
		require.Regexp(t, "^"+regexp.QuoteMeta(path)+"/_c_"+uuid+"-"+r.prefix+`\d{10}$`, lease.Path())
	})
}

// The cost of an election: the requests of a candidate behind another one, and exactly one delete for a change of the
// leader.
func TestRequests(t *testing.T) {
	eachRecipe(t, func(t *testing.T, r recipe) {
		t.Helper()
		path, conn := testkit.Path(t), observer(t)
		members, proxies := make([]*member, 2), make([]*faultproxy.Proxy, 2)
		for i := range members {
			proxies[i] = faultproxy.New(t, ensemble.Shared(t).Server(0))
			client := testclient.Dial(t, []string{proxies[i].Addr()}, recipes.WithSessionTimeout(patience))
			proxies[i].ResetCounts()
			members[i] = r.enter(t, client, path, fmt.Sprint(i))
			testkit.Eventually(t, func() bool { return len(children(t, conn, path)) == i+1 }, "the znode")
		}
		leader := members[0].lead(t).Path()
		testkit.Eventually(t, func() bool { return watchers(t, ensemble.Shared(t), leader) == 2 }, "leader and follower watch the leader's znode")
		testkit.Eventually(t, func() bool { return requests(proxies[1])["getData"] == 2 }, "the follower has read its own znode too")
		require.Equal(t, map[string]int{"create2": 1, "getChildren2": 1, "getData": 2}, requests(proxies[1]))
		for _, proxy := range proxies {
			proxy.ResetCounts()
		}
		require.NoError(t, members[0].Close())
		members[1].lead(t)
		require.Equal(t, map[string]int{"delete": 1}, requests(proxies[0]))
		require.Empty(t, requests(proxies[1]))
	})
}

// requests returns a proxy's counts since its last reset, by operation, without handshakes.
func requests(proxy *faultproxy.Proxy) map[string]int {
	counted := proxy.Counts().Requests
	delete(counted, "connect")
	return counted
}

// A latch shows the leader to clients that take no part.
func TestObserve(t *testing.T) {
	path, r := testkit.Path(t), both[0]
	onlooker, err := latch.New(direct(t), path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	leaders := onlooker.Observe(ctx)
	require.Equal(t, recipes.Participant{}, <-leaders)
	for i := range 3 {
		m := r.enter(t, direct(t), path, fmt.Sprint(i))
		lease := m.lead(t)
		requireLeader(t, m.id, lease, <-leaders)
		require.NoError(t, m.Close())
		require.Equal(t, recipes.Participant{}, <-leaders)
	}
	cancel()
	_, open := <-leaders
	require.False(t, open)
}

// A selector without AutoRequeue leads once, and once more for each Requeue.
func TestRequeue(t *testing.T) {
	path := testkit.Path(t)
	led := make(chan int64)
	s, err := selector.New(direct(t), path, func(_ context.Context, term *recipes.Lease) error {
		led <- term.FencingToken()
		return nil
	})
	require.NoError(t, err)
	require.False(t, s.Requeue(), "not started")
	require.NoError(t, s.Start())
	token := <-led
	for range 3 {
		testkit.Eventually(t, s.Requeue, "the end of the term")
		next := <-led
		require.Greater(t, next, token)
		token = next
	}
	require.NoError(t, s.Close())
	require.Empty(t, children(t, observer(t), path))
}

// Await, Decided and Leadership of a latch, with a leader and with a follower.
func TestLatchAnswers(t *testing.T) {
	path := testkit.Path(t)
	enter := func(id string) *latch.LeaderLatch {
		l, err := latch.New(direct(t), path, latch.WithID(id))
		require.NoError(t, err)
		require.NoError(t, l.Start())
		select {
		case <-l.Decided():
		case <-testkit.Context(t).Done():
			require.FailNow(t, "not decided")
		}
		return l
	}
	first, second := enter("first"), enter("second")
	lease, err := first.Await(testkit.Context(t))
	require.NoError(t, err)
	held, ok := first.Leadership()
	require.True(t, ok)
	require.Same(t, lease, held)
	_, ok = second.Leadership()
	require.False(t, ok)
	short, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = second.Await(short)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, first.Close())
	_, err = second.Await(testkit.Context(t))
	require.NoError(t, err)
	_, err = first.Await(testkit.Context(t))
	require.ErrorIs(t, err, recipes.ErrClosed)
	require.NoError(t, second.Close())
	require.Empty(t, children(t, observer(t), path))
}
