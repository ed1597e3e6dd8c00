//go:build !race

package election_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/curator"
	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
)

// ourPair is two latches of this library.
type ourPair struct {
	t       *testing.T
	path    string
	clients [2]*recipes.Client
	latches [2]*latch.LeaderLatch
	elected [2]chan time.Time
	leads   int // which one
}

func newOurPair(t *testing.T, server *ensemble.Ensemble, conn *zk.Conn) pair {
	t.Helper()
	p := &ourPair{t: t, path: testkit.Path(t) + "-go"}
	for i := range p.clients {
		p.clients[i] = testclient.Dial(t, server.Servers(), recipes.WithSessionTimeout(patience))
		p.enter(i)
		testkit.Eventually(t, func() bool { return len(children(t, conn, p.path)) == i+1 }, "the latch's znode")
	}
	t.Cleanup(func() {
		for _, l := range p.latches {
			require.NoError(t, l.Close())
		}
	})
	<-p.elected[0]
	return p
}

func (p *ourPair) enter(i int) {
	p.elected[i] = make(chan time.Time, 1)
	elected := p.elected[i]
	l, err := latch.New(p.clients[i], p.path, latch.WithListener(latch.Listener{
		IsLeader: func(*recipes.Lease) { elected <- time.Now() },
	}))
	require.NoError(p.t, err)
	require.NoError(p.t, l.Start())
	p.latches[i] = l
}

// watched: both watch the leader's znode, and the follower its own.
func (p *ourPair) watched() map[string]int {
	lease, err := p.latches[p.leads].Await(testkit.Context(p.t))
	require.NoError(p.t, err)
	follower := p.latches[1-p.leads]
	testkit.Eventually(p.t, func() bool { return follower.Path() != "" }, "the follower's znode")
	return map[string]int{lease.Path(): 2, follower.Path(): 1}
}

func (p *ourPair) handover() time.Duration {
	old, next := p.leads, 1-p.leads
	began := time.Now()
	require.NoError(p.t, p.latches[old].Close())
	took := (<-p.elected[next]).Sub(began)
	p.leads = next
	p.enter(old)
	return took
}

// curatorPair is two of Curator's.
type curatorPair struct {
	t     *testing.T
	conn  *zk.Conn
	agent *curator.Agent
	path  string
	leads int // number of the leading latch
}

func newCuratorPair(t *testing.T, server *ensemble.Ensemble, conn *zk.Conn) pair {
	t.Helper()
	p := &curatorPair{t: t, conn: conn, agent: curator.New(t, server.Servers(), patience), path: testkit.Path(t) + "-java"}
	for i := range 2 {
		p.agent.Do(t, "connect", p.client(i))
		p.enter(i)
		testkit.Eventually(t, func() bool { return len(children(t, conn, p.path)) == i+1 }, "the latch's znode")
	}
	testkit.Eventually(t, func() bool { return p.agent.Do(t, "leads", p.latch(0)) == "true" }, "the first latch")
	return p
}

func (p *curatorPair) client(i int) string { return "client" + strconv.Itoa(i%2) }
func (p *curatorPair) latch(i int) string  { return "latch" + strconv.Itoa(i) }
func (p *curatorPair) enter(i int) {
	p.agent.Do(p.t, "latch", p.latch(i), p.client(i), p.path, p.latch(i))
}

func (p *curatorPair) watched() map[string]int {
	var queue []string
	testkit.Eventually(p.t, func() bool { queue = children(p.t, p.conn, p.path); return len(queue) == 2 }, "two latches")
	return map[string]int{p.path + "/" + queue[0]: 1}
}

func (p *curatorPair) handover() time.Duration {
	nanoseconds, err := strconv.ParseInt(p.agent.Do(p.t, "handover", p.latch(p.leads), p.latch(p.leads+1)), 10, 64)
	require.NoError(p.t, err)
	p.enter(p.leads + 2)
	p.leads++
	return time.Duration(nanoseconds)
}
