package points_test

import (
	"context"
	"path"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// acquireScenarios acquire and release a free lock.
var acquireScenarios = []scenario{
	{part: "acquire", name: "acquire, parents missing", brief: true, play: func(s *stage) {
		s.dir = path.Join(s.dir, "a", "b")
		s.begin()
		lease := s.acquire(s.client)
		s.end()
		s.holds(lease)
		s.release(lease)
	}},
	{part: "acquire", name: "acquire", brief: true, play: func(s *stage) {
		s.exists()
		s.begin()
		lease := s.acquire(s.client)
		s.end()
		s.holds(lease)
		s.release(lease)
	}},
	{part: "acquire", name: "acquire and hold", play: func(s *stage) {
		s.exists()
		s.begin()
		lease := s.watched(s.acquire(s.client))
		s.holds(lease)
		s.release(lease)
	}},
	{part: "acquire", name: "acquire, the create's answer lost before", play: func(s *stage) {
		s.exists()
		s.proxy.DropReply(faultproxy.Op("create2"), 1)
		s.beginAfterCut()
		lease := s.acquire(s.client)
		s.end()
		s.holds(lease)
		s.release(lease)
	}},
	{part: "acquire", name: "acquire and re-enter", brief: true, play: func(s *stage) {
		s.exists()
		s.begin()
		outer := s.acquire(s.client)
		inner, err := s.mutex(s.client).Acquire(outer.Context())
		require.NoError(s, err)
		require.Equal(s, outer.FencingToken(), inner.FencingToken())
		s.release(outer)
		s.holds(inner)
		s.release(inner)
	}},
	{part: "acquire", name: "try, free", brief: true, play: func(s *stage) {
		s.exists()
		s.begin()
		lease, err := s.mutex(s.client).TryAcquire(s.ctx)
		require.NoError(s, err)
		s.end()
		s.holds(lease)
		s.release(lease)
	}},
	{part: "acquire", name: "try, held", play: func(s *stage) {
		held := s.acquire(s.peers[0])
		s.begin()
		_, err := s.mutex(s.client).TryAcquire(s.ctx)
		require.ErrorIs(s, err, recipes.ErrNotAcquired)
		require.Equal(s, []string{held.Path()}, s.paths(), "TryAcquire returns when its znode is gone")
		s.end()
		s.release(held)
	}},
	{part: "acquire", name: "do", brief: true, play: func(s *stage) {
		s.exists()
		s.begin()
		ran := 0
		require.NoError(s, s.mutex(s.client).Do(s.ctx, func(_ context.Context, lease *recipes.Lease) error {
			ran++
			s.holds(lease)
			return nil
		}))
		require.Equal(s, 1, ran)
	}},
	{part: "acquire", name: "acquire, abandoned during the create", background: true, play: abandonedCreate},
	{part: "acquire", name: "acquire, abandoned during the create, its answer lost before", background: true, play: func(s *stage) {
		s.exists()
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		s.proxy.OnRequest(func(r faultproxy.Request) {
			if r.Op == "create2" {
				cancel()
			}
		})
		s.proxy.DropReply(faultproxy.Op("create2"), 1)
		s.beginAfterCut()
		_, err := s.mutex(s.client).Acquire(ctx)
		require.ErrorIs(s, err, context.Canceled)
		s.isCleared("delete")
	}},
	{part: "release", name: "release", play: func(s *stage) {
		lease := s.watched(s.acquire(s.client))
		s.begin()
		s.release(lease)
	}},
	{part: "release", name: "release, the delete's answer lost before", play: func(s *stage) {
		lease := s.acquire(s.client)
		s.proxy.DropReply(faultproxy.Op("delete"), 1)
		s.beginAfterCut()
		s.release(lease)
	}},
	{part: "release", name: "release, the delete's request lost before", play: func(s *stage) {
		lease := s.acquire(s.client)
		s.proxy.DropRequest(faultproxy.Op("delete"), 1)
		s.beginAfterCut()
		s.release(lease)
	}},
	{part: "release", name: "hold until the heartbeat, release", timeout: beating, beats: true, play: func(s *stage) {
		lease := s.watched(s.acquire(s.client))
		s.begin()
		trusted := lease.TrustedUntil()
		s.eventually(func() bool { return lease.TrustedUntil().After(trusted) }, "proof of the session")
		s.holds(lease)
		s.release(lease)
	}},
}

func abandonedCreate(s *stage) {
	s.exists()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.begin()
	s.proxy.OnRequest(func(r faultproxy.Request) {
		if r.Op == "create2" {
			cancel()
		}
	})
	_, err := s.mutex(s.client).Acquire(ctx)
	require.ErrorIs(s, err, context.Canceled)
	s.isCleared("create2")
}

// isCleared waits for the answer to such a request, and then until the directory is empty, for scenarios whose caller
// returned before the znode existed.
func (s *stage) isCleared(op string) {
	if s.fault == nil {
		s.eventually(func() bool { return s.answersTo(op) > 0 }, "an answer to "+op)
	} else {
		s.eventually(func() bool { return s.fault.met.Load() || s.answersTo(op) > 0 }, "the fault")
		s.fault.settle()
	}
	s.empty()
}

func (s *stage) acquire(client *recipes.Client, opts ...mutex.Option) *recipes.Lease {
	lease, err := s.mutex(client, opts...).Acquire(s.ctx)
	require.NoError(s, err)
	return lease
}

// holds requires a valid lease, whose znode is first in the queue and has the token.
func (s *stage) holds(lease *recipes.Lease) {
	s.stands(lease)
	require.Equal(s, lease.Path(), s.paths()[0], "somebody is ahead of the holder")
}

// stands requires a valid lease, whose znode has the token.
func (s *stage) stands(lease *recipes.Lease) {
	require.NoError(s, context.Cause(lease.Context()))
	found, stat, err := s.world.admin.Exists(lease.Path())
	require.NoError(s, err)
	require.True(s, found, "the lease's znode")
	require.Equal(s, stat.Czxid, lease.FencingToken())
}

// release releases a lease. A nil error means that the znode is deleted, if this was its last lease.
func (s *stage) release(lease *recipes.Lease) {
	require.NoError(s, lease.Release())
	require.ErrorIs(s, context.Cause(lease.Context()), recipes.ErrReleased)
}
