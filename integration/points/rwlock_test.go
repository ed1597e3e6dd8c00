package points_test

import (
	"context"
	"path"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

// readWriteScenarios are those of the read-write lock.
var readWriteScenarios = ofReadWriteLock(
	scenario{name: "write, parents missing", brief: true, play: func(s *stage) {
		s.dir = path.Join(s.dir, "a", "b")
		s.begin()
		lease := s.get(s.writeLock(s.client))
		s.end()
		s.holds(lease)
		s.release(lease)
	}},
	scenario{name: "write and give back", brief: true, play: func(s *stage) {
		s.exists()
		s.begin()
		s.release(s.get(s.writeLock(s.client)))
	}},
	scenario{name: "read beside a reader, and give back", brief: true, play: func(s *stage) {
		other := s.get(s.readLock(s.peers[0]))
		s.begin()
		lease := s.get(s.readLock(s.client))
		s.stands(lease)
		s.release(lease)
		s.end()
		s.stands(other)
		s.release(other)
	}},
	scenario{name: "write waits for a reader", play: func(s *stage) {
		held := s.get(s.readLock(s.peers[0]))
		s.begin()
		waiter := s.acquiring(s.ctx, s.writeLock(s.client))
		s.waitsBehind(held.Path())
		s.takesOver(waiter, held)
	}},
	scenario{name: "read waits for a writer", play: func(s *stage) {
		held := s.get(s.writeLock(s.peers[0]))
		s.begin()
		waiter := s.acquiring(s.ctx, s.readLock(s.client))
		s.waitsBehind(held.Path())
		s.takesOver(waiter, held)
	}},
	scenario{name: "write waits for two readers", play: func(s *stage) {
		first, second := s.get(s.readLock(s.peers[0])), s.get(s.readLock(s.peers[1]))
		s.begin()
		waiter := s.acquiring(s.ctx, s.writeLock(s.client))
		s.waitsBehind(second.Path())
		s.release(second)
		s.hasRead(first.Path())
		s.takesOver(waiter, first)
	}},
	scenario{name: "read waits, disconnected before", play: func(s *stage) {
		held := s.get(s.writeLock(s.peers[0]))
		waiter := s.acquiring(s.ctx, s.readLock(s.client))
		s.waitsBehind(held.Path())
		s.beginAfterCut()
		s.proxy.Cut()
		s.eventually(func() bool { return s.reads(held.Path()) > 1 }, "another look at the queue")
		s.takesOver(waiter, held)
	}},
	scenario{name: "write waits, abandoned", background: true, play: func(s *stage) {
		held := s.get(s.readLock(s.peers[0]))
		ctx, cancel := context.WithCancel(s.ctx)
		s.begin()
		waiter := s.acquiring(ctx, s.writeLock(s.client))
		s.waitsBehind(held.Path())
		cancel()
		require.ErrorIs(s, s.outcome(waiter).err, context.Canceled)
		s.eventually(func() bool { return len(s.paths()) == 1 }, "the end of the waiter's znode")
		s.end()
		s.release(s.get(s.readLock(s.peers[1]))) // the writer does not block others
		s.release(held)
	}},
	scenario{name: "try to write, a reader there", play: func(s *stage) {
		held := s.get(s.readLock(s.peers[0]))
		s.begin()
		_, err := s.writeLock(s.client).TryAcquire(s.ctx)
		require.ErrorIs(s, err, recipes.ErrNotAcquired)
		require.Equal(s, []string{held.Path()}, s.paths(), "TryAcquire returns when its znode is gone")
		s.end()
		s.release(held)
	}},
	scenario{name: "downgrade beside a writer that waits", play: downgrades},
	scenario{name: "downgrade, the read lock given back first", brief: true, play: func(s *stage) {
		l := s.readWriteLock(s.client)
		writing := s.get(l.WriteLock())
		s.begin()
		reading, err := l.ReadLock().Acquire(writing.Context())
		require.NoError(s, err)
		s.release(reading)
		s.end()
		s.holds(writing)
		s.release(writing)
	}},
	scenario{name: "participants of both kinds", play: func(s *stage) {
		held := s.get(s.readLock(s.peers[0]))
		waiter := s.acquiring(s.ctx, s.writeLock(s.peers[1]))
		s.eventually(func() bool { return len(s.paths()) == 2 }, "the waiter's znode")
		l := s.readWriteLock(s.client)
		s.begin()
		readers, err := l.ReadLock().Participants(s.ctx)
		require.NoError(s, err)
		writers, err := l.WriteLock().Participants(s.ctx)
		require.NoError(s, err)
		s.end()
		require.Len(s, readers, 1)
		require.True(s, readers[0].Leader)
		require.Len(s, writers, 1)
		require.False(s, writers[0].Leader)
		s.release(held)
		s.release(s.granted(waiter))
	}},
)

// downgrades has the client go from the write lock to the read lock. A writer that waits stays out, and is served
// when the reader leaves.
func downgrades(s *stage) {
	l := s.readWriteLock(s.client)
	writing := s.watched(s.get(l.WriteLock()))
	waiter := s.acquiring(s.ctx, s.writeLock(s.peers[0]))
	s.eventually(func() bool { return len(s.paths()) == 2 }, "the waiter's znode")
	s.begin()
	reading, err := l.ReadLock().Acquire(writing.Context())
	require.NoError(s, err)
	require.Equal(s, writing.FencingToken(), reading.FencingToken())
	s.release(writing)
	_, err = s.readLock(s.peers[1]).TryAcquire(s.ctx)
	require.ErrorIs(s, err, recipes.ErrNotAcquired, "a reader overtakes the writer that waits")
	s.waits(waiter)
	require.NoError(s, context.Cause(reading.Context()))
	s.release(reading)
	lease := s.granted(waiter)
	s.end()
	require.Greater(s, lease.FencingToken(), reading.FencingToken())
	s.holds(lease)
	s.release(lease)
}

// ofReadWriteLock are scenarios after which a client can write at once.
func ofReadWriteLock(all ...scenario) []scenario {
	for i := range all {
		all[i].part = "read-write lock"
		all[i].free = func(s *stage, client *recipes.Client) {
			lease, err := s.writeLock(client).TryAcquire(s.ctx)
			require.NoError(s, err, "somebody is in the way")
			require.NoError(s, lease.Release())
		}
	}
	return all
}

func (s *stage) readWriteLock(client *recipes.Client) *rwlock.InterProcessReadWriteLock {
	l, err := rwlock.New(client, s.dir)
	require.NoError(s, err)
	return l
}

func (s *stage) readLock(client *recipes.Client) *rwlock.Lock {
	return s.readWriteLock(client).ReadLock()
}

func (s *stage) writeLock(client *recipes.Client) *rwlock.Lock {
	return s.readWriteLock(client).WriteLock()
}
