package points_test

import (
	"context"
	"path"
	"slices"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
)

// latchScenarios are elections by latch.
var latchScenarios = []scenario{
	{part: "latch", name: "latch leads and closes, parents missing", play: func(s *stage) {
		s.dir = path.Join(s.dir, "a", "b")
		s.begin()
		l := s.latch(s.client)
		s.watched(s.leads(l))
		require.NoError(s, l.Close())
	}},
	{part: "latch", name: "latch leads and closes, its listeners told", play: func(s *stage) {
		s.exists()
		told := &told{}
		s.begin()
		l := s.latch(s.client, latch.WithCloseMode(latch.NotifyLeader), latch.WithListener(told.listener(s)))
		s.watched(s.leads(l))
		s.eventually(func() bool { return len(told.list()) > 0 }, "the listener's turn") // a term may be over before it
		require.NoError(s, l.Close())
		require.Equal(s, []string{"leader", "no leader, znode there"}, told.list())
	}},
	{part: "latch", name: "latch waits, takes over, closes", play: func(s *stage) {
		first := s.latch(s.peers[0])
		ahead := s.leads(first)
		s.begin()
		second := s.latch(s.client)
		s.waitsBehind(ahead.Path())
		s.happens(second.Decided(), "the decision")
		require.False(s, second.HasLeadership())
		require.NoError(s, first.Close())
		term := s.leads(second)
		require.Greater(s, term.FencingToken(), ahead.FencingToken())
		require.NoError(s, second.Close())
	}},
	{part: "latch", name: "latch waits and closes", play: func(s *stage) {
		first := s.latch(s.peers[0])
		ahead := s.leads(first)
		s.begin()
		second := s.latch(s.client)
		s.waitsBehind(ahead.Path())
		require.NoError(s, second.Close())
		require.Equal(s, []string{ahead.Path()}, s.paths(), "a latch that was closed has left")
		s.end()
		require.NoError(s, first.Close())
	}},
	{part: "latch", name: "latch leads, disconnected before, closes", play: func(s *stage) {
		l := s.latch(s.client)
		term := s.watched(s.leads(l))
		s.beginAfterCut()
		s.proxy.Cut()
		s.eventually(func() bool { return s.reads(term.Path()) > 1 }, "another look at the own znode")
		require.True(s, l.HasLeadership(), "a disconnection ends no term")
		require.NoError(s, l.Close())
	}},
	{part: "latch", name: "latch releases its term, joins again", play: func(s *stage) {
		s.exists()
		s.begin()
		l := s.latch(s.client)
		term := s.watched(s.leads(l))
		waiting := s.latch(s.peers[0])
		s.eventually(func() bool { return len(s.paths()) == 2 }, "another latch's znode")
		require.NoError(s, term.Release())
		ahead := s.leads(waiting)
		s.waitsBehind(ahead.Path())
		require.False(s, l.HasLeadership())
		require.NoError(s, waiting.Close())
		next := s.leads(l)
		require.Greater(s, next.FencingToken(), ahead.FencingToken())
		require.NoError(s, l.Close())
	}},
	{part: "latch", name: "latch asks who leads", play: func(s *stage) {
		first := s.latch(s.peers[0], latch.WithID("one"))
		ahead := s.leads(first)
		asking, err := latch.New(s.client, s.dir)
		require.NoError(s, err)
		s.begin()
		leader, err := asking.Leader(s.ctx)
		require.NoError(s, err)
		s.requireLeader("one", ahead, leader)
		s.end()
		require.NoError(s, first.Close())
	}},
	{part: "latch", name: "latch observes", play: observes},
}

func observes(s *stage) {
	s.exists()
	observer, err := latch.New(s.client, s.dir)
	require.NoError(s, err)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.begin()
	leaders := observer.Observe(ctx)
	require.Empty(s, s.next(leaders).Path)
	first := s.latch(s.peers[0])
	term := s.leads(first)
	require.Equal(s, term.Path(), s.next(leaders).Path)
	require.NoError(s, first.Close())
	require.Empty(s, s.next(leaders).Path)
	s.end()
	second := s.latch(s.peers[1])
	require.Equal(s, s.leads(second).Path(), s.next(leaders).Path, "observation goes on")
	require.NoError(s, second.Close())
	cancel()
	for range leaders { // until it is closed
	}
}

func (s *stage) next(leaders <-chan recipes.Participant) recipes.Participant {
	select {
	case leader, ok := <-leaders:
		require.True(s, ok, "the observation has ended")
		return leader
	case <-s.ctx.Done():
		require.Fail(s, "no leader was told")
		return recipes.Participant{}
	}
}

// requireLeader asserts that others see the holder of a lease.
func (s *stage) requireLeader(id string, lease *recipes.Lease, seen recipes.Participant) {
	require.NotZero(s, seen.Since)
	require.Equal(s, recipes.Participant{ID: id, Path: lease.Path(), Leader: true, Token: lease.FencingToken(), Since: seen.Since}, seen)
}

// latch returns a started latch.
func (s *stage) latch(client *recipes.Client, opts ...latch.Option) *latch.LeaderLatch {
	l, err := latch.New(client, s.dir, opts...)
	require.NoError(s, err)
	require.NoError(s, l.Start())
	return l
}

// leads waits until a latch leads.
func (s *stage) leads(l *latch.LeaderLatch) *recipes.Lease {
	term, err := l.Await(s.ctx)
	require.NoError(s, err)
	require.True(s, l.HasLeadership())
	s.holds(term)
	return term
}

// told is a call of a listener.
type told struct {
	mu    sync.Mutex // protects what is below
	words []string
	term  *recipes.Lease
}

func (n *told) listener(s *stage) latch.Listener {
	return latch.Listener{
		IsLeader: func(term *recipes.Lease) {
			n.mu.Lock()
			n.term = term
			n.mu.Unlock()
			n.add("leader")
			<-term.Context().Done()
		},
		NotLeader: func() {
			n.mu.Lock()
			term := n.term
			n.mu.Unlock()
			if found, _, err := s.world.admin.Exists(term.Path()); err == nil && found {
				n.add("no leader, znode there")
				return
			}
			n.add("no leader, znode gone")
		},
	}
}

func (n *told) add(word string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.words = append(n.words, word)
}

func (n *told) list() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.words)
}
