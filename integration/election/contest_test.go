package election_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// contest is an election of each recipe, with a leader and a follower. The leaders share a session, and so do the
// followers.
type contest struct {
	path      string
	leading   *recipes.Client
	observing *recipes.Client // finds a server that serves
	elections []*election
}

// election is one of them.
type election struct {
	recipe
	path             string
	leader, follower *member
	term             term
}

func newContest(t *testing.T, e *ensemble.Ensemble, leading, following *recipes.Client) *contest {
	t.Helper()
	c := &contest{
		path: testkit.Path(t), leading: leading,
		observing: testclient.Dial(t, e.Servers(), recipes.WithSessionTimeout(calm)),
	}
	for _, r := range both {
		path := c.path + "/" + r.name
		leader := r.enter(t, leading, path, "leader")
		began := leader.lead(t)
		c.elections = append(c.elections, &election{r, path, leader, r.enter(t, following, path, "follower"), began})
	}
	c.complete(t)
	return c
}

// complete waits until leader and follower, and no other candidates, are in this order.
func (c *contest) complete(t *testing.T) {
	t.Helper()
	for _, e := range c.elections {
		testkit.Eventually(t, func() bool { return len(c.children(e.path)) == 2 }, "two znodes")
		observer, err := e.create(c.observing, e.path, "", func(*recipes.Lease) {})
		require.NoError(t, err)
		require.Equal(t, []string{e.leader.id, e.follower.id}, ids(t, observer))
	}
}

// children lists the znodes as the quorum has them; none without a quorum.
func (c *contest) children(path string) []string {
	conn := c.observing.Conn()
	if _, err := conn.Sync(path); err != nil {
		return nil
	}
	names, _, _ := conn.Children(path)
	return names
}

// proven waits until a write after the call proves that the leaders' sessions are alive, and checks that nothing
// changed.
func (c *contest) proven(t *testing.T) {
	t.Helper()
	from := time.Now().Add(c.leading.SessionTimeout() * 2 / 3)
	for _, e := range c.elections {
		testkit.Eventually(t, func() bool { return e.term.Context().Err() != nil || e.term.TrustedUntil().After(from) }, "proof")
		require.NoError(t, context.Cause(e.term.Context()), "the term has ended")
		require.True(t, e.leader.HasLeadership())
		require.Empty(t, e.leader.began, "no new term")
		e.follower.follows(t)
	}
}

// succeeded waits until the followers lead in place of the leaders, whose terms ended for this cause, and returns when
// the last of them began.
func (c *contest) succeeded(t *testing.T, cause error) (last time.Time) {
	t.Helper()
	for _, e := range c.elections {
		last = e.succeeded(t, cause)
	}
	return last
}

func (e *election) succeeded(t *testing.T, cause error) time.Time {
	t.Helper()
	next := e.follower.lead(t)
	require.ErrorIs(t, context.Cause(e.term.Context()), cause)
	require.Greater(t, next.FencingToken(), e.term.FencingToken())
	e.leader.follows(t)
	e.leader, e.follower, e.term = e.follower, e.leader, next
	return next.at
}

// resumed waits until the leader leads again, with the znode of the term that ended for this cause.
func (e *election) resumed(t *testing.T, cause error) {
	t.Helper()
	require.ErrorIs(t, ended(t, e.term), cause)
	next := e.leader.lead(t)
	require.Equal(t, e.term.FencingToken(), next.FencingToken())
	require.Equal(t, e.term.Path(), next.Path())
	e.follower.follows(t)
	e.term = next
}

// finish makes the leaders hand over in order, and all candidates leave.
func (c *contest) finish(t *testing.T) {
	t.Helper()
	for _, e := range c.elections {
		require.NoError(t, e.leader.Close())
	}
	c.succeeded(t, recipes.ErrReleased)
	for _, e := range c.elections {
		require.NoError(t, e.leader.Close())
		require.Empty(t, c.children(e.path))
	}
}

// serverOf is the number of the node that a client is connected to.
func serverOf(t *testing.T, e *ensemble.Ensemble, client *recipes.Client) int {
	t.Helper()
	reached(t, client, recipes.Connected)
	node := slices.Index(e.Servers(), client.Conn().Server())
	require.GreaterOrEqual(t, node, 0)
	return node
}

// reached waits for the client's state.
func reached(t *testing.T, client *recipes.Client, state recipes.ConnectionState) {
	t.Helper()
	testkit.Eventually(t, func() bool { return client.State() == state }, state.String())
}
