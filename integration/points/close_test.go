package points_test

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// closeScenarios close the client, which deletes its znodes as far as possible, and ends its session. If that fails,
// the leftovers expire with the session.
var closeScenarios = []scenario{
	{part: "close", name: "client closes while it holds", timeout: beating, alone: "close", play: func(s *stage) {
		lease := s.acquire(s.client)
		s.begin()
		s.closes()
		require.ErrorIs(s, context.Cause(lease.Context()), recipes.ErrClosed)
	}},
	{part: "close", name: "client closes while it waits", timeout: beating, alone: "close", play: func(s *stage) {
		held := s.acquire(s.peers[0])
		waiter := s.waiting(held.Path())
		s.begin()
		s.closes()
		require.ErrorIs(s, s.outcome(waiter).err, recipes.ErrClosed)
		s.holds(held)
		s.release(held)
	}},
	{part: "close", name: "client closes while its latch leads", timeout: beating, alone: "close", play: func(s *stage) {
		l := s.latch(s.client)
		term := s.leads(l)
		s.begin()
		s.closes()
		require.ErrorIs(s, context.Cause(term.Context()), recipes.ErrClosed)
		require.NoError(s, l.Close())
	}},
	{part: "close", name: "client closes while its selector leads", timeout: beating, alone: "close", play: func(s *stage) {
		work := newWork(s)
		e := s.selector(s.client, work)
		term := work.term()
		s.begin()
		s.closes()
		require.ErrorIs(s, context.Cause(term.Context()), recipes.ErrClosed)
		require.NoError(s, e.Close())
	}},
}

func (s *stage) closes() {
	require.NoError(s, s.client.Close())
	s.closed = true
}
