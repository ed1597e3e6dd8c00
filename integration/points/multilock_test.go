package points_test

import (
	"path"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// multilockScenarios acquire three locks of different kinds as one.
var multilockScenarios = ofMultilock(
	scenario{name: "three locks as one", brief: true, play: func(s *stage) {
		s.exists()
		s.begin()
		lease, err := s.multilock(s.client).Acquire(s.ctx)
		require.NoError(s, err)
		require.Len(s, lease.Leases(), 3)
		for _, part := range lease.Leases() {
			s.stands(part)
		}
		require.NoError(s, lease.Release())
	}},
	scenario{name: "try for three locks, the last one is held", brief: true, play: func(s *stage) {
		held, err := s.parts(s.peers[0])[2].Acquire(s.ctx)
		require.NoError(s, err)
		s.begin()
		_, err = s.multilock(s.client).TryAcquire(s.ctx)
		require.ErrorIs(s, err, recipes.ErrNotAcquired)
		s.end()
		s.release(held)
	}},
	scenario{name: "wait for one of three locks", briefIn: "c", play: func(s *stage) {
		held := s.get(s.parts(s.peers[0])[1])
		m, done := s.multilock(s.client), make(chan error, 1)
		s.begin()
		go func() { // ends with the multilock, at the latest with the play's context
			lease, err := m.Acquire(s.ctx)
			if err == nil {
				err = lease.Release()
			}
			done <- err
		}()
		s.hasRead(held.Path())
		s.hasRead(s.pathsIn("b")[1])
		s.release(held)
		select {
		case err := <-done:
			require.NoError(s, err)
		case <-s.ctx.Done():
			require.Fail(s, "the multilock is not acquired")
		}
	}},
)

// ofMultilock are scenarios after which a client can have all locks at once.
func ofMultilock(all ...scenario) []scenario {
	for i := range all {
		all[i].part, all[i].background = "multilock", true
		all[i].dirs = []string{"a", "b", path.Join("c", turns), path.Join("c", taken)}
		all[i].free = func(s *stage, client *recipes.Client) {
			lease, err := s.multilock(client).TryAcquire(s.ctx)
			require.NoError(s, err, "somebody is in the way")
			require.NoError(s, lease.Release())
		}
	}
	return all
}

// parts are a mutex, a write lock, and a semaphore mutex.
func (s *stage) parts(client *recipes.Client) []multilock.Locker {
	first, err := mutex.New(client, path.Join(s.dir, "a"))
	require.NoError(s, err)
	second, err := rwlock.New(client, path.Join(s.dir, "b"))
	require.NoError(s, err)
	third, err := semaphore.NewMutex(client, path.Join(s.dir, "c"))
	require.NoError(s, err)
	return []multilock.Locker{first, second.WriteLock(), third}
}

func (s *stage) multilock(client *recipes.Client) *multilock.InterProcessMultiLock {
	m, err := multilock.New(s.parts(client)...)
	require.NoError(s, err)
	return m
}
