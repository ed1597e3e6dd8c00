package points_test

import (
	"context"
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/once"
)

// onceScenarios run an occurrence at most once, with any loss of the records of its start and its end.
var onceScenarios = []scenario{
	{part: "once", name: "first occurrence", beats: true, briefOwn: true, play: func(s *stage) {
		s.begin()
		s.runsOnce("1")
	}},
	{part: "once", name: "next occurrence", beats: true, briefOwn: true, play: func(s *stage) {
		require.NoError(s, s.once(s.peers[0]).Do(s.ctx, "1", func(context.Context, *recipes.Lease) error { return nil }))
		s.begin()
		s.runsOnce("2")
	}},
	{part: "once", name: "occurrence that another host has run", beats: true, briefOwn: true, play: func(s *stage) {
		require.NoError(s, s.once(s.peers[0]).Do(s.ctx, "1", func(context.Context, *recipes.Lease) error { return nil }))
		s.begin()
		err := s.once(s.client).Do(s.ctx, "1", func(context.Context, *recipes.Lease) error { return errors.New("run again") })
		require.ErrorIs(s, err, once.ErrDone)
		s.end()
	}},
}

func (s *stage) once(client *recipes.Client) *once.Once {
	o, err := once.New(client, s.dir)
	require.NoError(s, err)
	return o
}

// runsOnce has the client run an occurrence, and then another host try it.
func (s *stage) runsOnce(occurrence string) {
	runs := 0
	require.NoError(s, s.once(s.client).Do(s.ctx, occurrence, func(context.Context, *recipes.Lease) error {
		runs++
		return nil
	}))
	s.end()
	require.Equal(s, 1, runs)
	var done *once.DoneError
	err := s.once(s.peers[0]).Do(s.ctx, occurrence, func(context.Context, *recipes.Lease) error { return errors.New("run again") })
	require.ErrorAs(s, err, &done)
	require.True(s, done.Last.Finished)
}
