package points_test

import (
	"context"
	"path"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// selectorScenarios are elections by selector.
var selectorScenarios = []scenario{
	{part: "selector", name: "selector leads one term and closes, parents missing", play: func(s *stage) {
		s.dir = path.Join(s.dir, "a", "b")
		work := newWork(s)
		s.begin()
		e := s.selector(s.client, work)
		s.watched(work.term())
		work.done <- nil
		s.eventually(func() bool { return len(s.children()) == 0 }, "the end of the term's znode")
		require.NoError(s, e.Close())
	}},
	{part: "selector", name: "selector requeues by itself", play: func(s *stage) {
		s.exists()
		work := newWork(s)
		s.begin()
		e := s.selector(s.client, work, selector.WithAutoRequeue())
		first := s.watched(work.term())
		work.done <- nil
		second := s.watched(work.term())
		require.Greater(s, second.FencingToken(), first.FencingToken())
		require.NoError(s, e.Close())
	}},
	{part: "selector", name: "selector is interrupted, requeued by hand", play: func(s *stage) {
		s.exists()
		work := newWork(s)
		s.begin()
		e := s.selector(s.client, work)
		first := s.watched(work.term())
		e.InterruptLeadership()
		s.happens(first.Context().Done(), "the interrupt")
		s.eventually(e.Requeue, "the end of the first term")
		second := s.watched(work.term())
		require.Greater(s, second.FencingToken(), first.FencingToken())
		require.NoError(s, e.Close())
	}},
	{part: "selector", name: "selector waits, takes over, closes", play: func(s *stage) {
		ahead, work := newWork(s), newWork(s)
		first := s.selector(s.peers[0], ahead)
		term := ahead.term()
		s.begin()
		second := s.selector(s.client, work)
		s.waitsBehind(term.Path())
		require.False(s, second.HasLeadership())
		require.NoError(s, first.Close())
		require.Greater(s, work.term().FencingToken(), term.FencingToken())
		require.NoError(s, second.Close())
	}},
	{part: "selector", name: "selector waits and closes", play: func(s *stage) {
		ahead, work := newWork(s), newWork(s)
		first := s.selector(s.peers[0], ahead)
		term := ahead.term()
		s.begin()
		second := s.selector(s.client, work)
		s.waitsBehind(term.Path())
		require.NoError(s, second.Close())
		require.Equal(s, []string{term.Path()}, s.paths(), "a selector that was closed has left")
		s.end()
		require.NoError(s, first.Close())
	}},
	{part: "selector", name: "selector runs until its context ends", play: func(s *stage) {
		s.exists()
		work := newWork(s)
		e, err := selector.New(s.client, s.dir, work.take)
		require.NoError(s, err)
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		ended := make(chan error, 1)
		s.begin()
		go func() { ended <- e.Run(ctx) }() // ends with ctx
		s.watched(work.term())
		cancel()
		select {
		case err := <-ended:
			require.NoError(s, err)
		case <-s.ctx.Done():
			require.Fail(s, "Run has not returned")
		}
	}},
	{part: "selector", name: "selector asks who leads", play: func(s *stage) {
		ahead := newWork(s)
		first := s.selector(s.peers[0], ahead, selector.WithID("one"))
		term := ahead.term()
		asking, err := selector.New(s.client, s.dir, newWork(s).take)
		require.NoError(s, err)
		s.begin()
		queue, err := asking.Participants(s.ctx)
		require.NoError(s, err)
		require.Len(s, queue, 1)
		s.requireLeader("one", term, queue[0])
		leader, err := asking.Leader(s.ctx)
		require.NoError(s, err)
		require.Equal(s, queue[0], leader)
		s.end()
		require.NoError(s, first.Close())
	}},
}

// selector returns a started selector.
func (s *stage) selector(client *recipes.Client, w *work, opts ...selector.Option) *selector.LeaderSelector {
	e, err := selector.New(client, s.dir, w.take, opts...)
	require.NoError(s, err)
	require.NoError(s, e.Start())
	return e
}

// work is a leader's work. It runs until it may finish or its context ends.
type work struct {
	s     *stage
	terms chan *recipes.Lease
	done  chan error
}

func newWork(s *stage) *work {
	return &work{s: s, terms: make(chan *recipes.Lease, 10), done: make(chan error)}
}

func (w *work) take(ctx context.Context, term *recipes.Lease) error {
	w.terms <- term
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// term waits for the next one.
func (w *work) term() *recipes.Lease {
	select {
	case term := <-w.terms:
		w.s.holds(term)
		return term
	case <-w.s.ctx.Done():
		require.Fail(w.s, "the selector does not lead")
		return nil
	}
}
