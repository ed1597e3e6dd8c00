package points_test

import (
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
)

// revokeScenarios have the client on either side of a revocation.
var revokeScenarios = []scenario{
	{part: "revoke", name: "revoke a holder", play: func(s *stage) {
		held := s.acquire(s.peers[0])
		s.begin()
		s.revokes(s.client, held.Path())
		s.end()
		s.happens(held.Revoked(), "the revocation")
		s.holds(held)
		s.release(held)
	}},
	{part: "revoke", name: "revoke whoever is gone", play: func(s *stage) {
		held := s.acquire(s.peers[0])
		s.release(held)
		s.begin()
		s.revokes(s.client, held.Path())
	}},
	{part: "revoke", name: "revoked, releases from the listener", play: func(s *stage) {
		told := make(chan error, 2)
		lease := s.watched(s.acquire(s.client, mutex.WithRevocationListener(func(lease *recipes.Lease) { told <- lease.Release() })))
		s.begin()
		s.revokes(s.peers[0], lease.Path())
		s.happens(lease.Context().Done(), "the release")
		require.NoError(s, <-told)
		s.end()
		require.Empty(s, told, "the listener is called once")
	}},
	{part: "revoke", name: "revoked while waiting", play: func(s *stage) {
		held := s.acquire(s.peers[0])
		waiter := s.waiting(held.Path())
		own := s.paths()[1]
		s.begin()
		s.revokes(s.peers[1], own)
		s.eventually(func() bool { return s.answersTo("getChildren2") > 1 }, "another look at the queue")
		s.waits(waiter)
		s.release(held)
		lease := s.granted(waiter)
		s.end()
		s.happens(lease.Revoked(), "the revocation")
		s.holds(lease)
		s.release(lease)
	}},
	{part: "revoke", name: "revoked while disconnected", play: func(s *stage) {
		lease := s.watched(s.acquire(s.client))
		s.beginAfterCut()
		s.proxy.Refuse(true)
		s.proxy.Cut()
		s.eventually(func() bool { return s.client.State() == recipes.Suspended }, "the disconnection")
		s.revokes(s.peers[0], lease.Path())
		s.proxy.Refuse(false)
		s.happens(lease.Revoked(), "the revocation")
		s.holds(lease)
		s.release(lease)
	}},
}

func (s *stage) revokes(by *recipes.Client, path string) {
	require.NoError(s, revoke.New(by).AttemptRevoke(s.ctx, path))
}
