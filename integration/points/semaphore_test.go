package points_test

import (
	"context"
	"path"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// permits is the limit of the semaphores.
const permits = 2

// semaphoreScenarios are those of the semaphore and of the semaphore mutex.
var semaphoreScenarios = ofSemaphore(
	scenario{name: "a permit, parents missing", brief: true, play: func(s *stage) {
		s.dir = path.Join(s.dir, "a", "b")
		s.begin()
		lease := s.get(s.semaphore(s.client))
		s.end()
		s.hold(lease)
		s.release(lease)
	}},
	scenario{name: "a permit beside another", brief: true, play: func(s *stage) {
		other := s.get(s.semaphore(s.peers[0]))
		s.begin()
		lease := s.get(s.semaphore(s.client))
		s.hold(other, lease)
		s.release(lease)
		s.end()
		s.hold(other)
		s.release(other)
	}},
	scenario{name: "all permits at once", brief: true, play: func(s *stage) {
		s.exists()
		s.begin()
		leases := s.getAll(s.client)
		s.hold(leases...)
		s.releaseAll(leases)
	}},
	scenario{name: "all permits, the turn passed on slowly", brief: true, slowTurn: true, play: func(s *stage) {
		s.exists()
		s.begin()
		s.proxy.DelayReply(faultproxy.OpPath("delete", turns), 20*time.Millisecond)
		leases := s.getAll(s.client)
		s.hold(leases...)
		s.releaseAll(leases)
	}},
	scenario{name: "try for all permits, one is taken", brief: true, play: func(s *stage) {
		held := s.get(s.semaphore(s.peers[0]))
		s.begin()
		_, err := s.semaphore(s.client).TryAcquireN(s.ctx, permits)
		require.ErrorIs(s, err, recipes.ErrNotAcquired)
		s.end()
		s.hold(held)
		s.release(held)
	}},
	scenario{name: "wait for a permit", play: func(s *stage) {
		held := s.getAll(s.peers[0])
		s.begin()
		waiter := s.acquiring(s.ctx, s.semaphore(s.client))
		s.waitsForRoom()
		s.waits(waiter)
		s.release(held[0])
		lease := s.watched(s.granted(waiter))
		s.hold(held[1], lease)
		s.release(lease)
		s.end()
		s.release(held[1])
	}},
	scenario{name: "wait for all permits, given back one by one", play: func(s *stage) {
		first, second := s.get(s.semaphore(s.peers[0])), s.get(s.semaphore(s.peers[1]))
		s.begin()
		waiter := s.gettingAll(s.ctx, s.client)
		s.waitsForRoom()
		looks := s.looks()
		s.release(first)
		s.looksAgain(looks)
		s.hold(second)
		s.release(second)
		leases := s.grantedAll(waiter)
		s.watched(leases[0])
		s.watched(leases[1])
		s.end()
		s.hold(leases...)
		s.releaseAll(leases)
	}},
	scenario{name: "wait for the turn", play: func(s *stage) {
		held := s.getAll(s.peers[0])
		ahead := s.gettingAll(s.ctx, s.peers[1])
		s.eventually(func() bool { return len(s.pathsIn(turns)) == 1 }, "a waiter ahead")
		turn := s.pathsIn(turns)[0]
		s.begin()
		waiter := s.acquiring(s.ctx, s.semaphore(s.client))
		s.hasRead(turn)
		s.hasRead(s.pathsIn(turns)[1])
		s.releaseAll(held)
		next := s.grantedAll(ahead)
		s.waitsForRoom()
		s.waits(waiter)
		s.release(next[0])
		lease := s.watched(s.granted(waiter))
		s.end()
		s.hold(next[1], lease)
		s.releaseAll([]*recipes.Lease{next[1], lease})
	}},
	scenario{name: "wait for a permit, disconnected before", play: func(s *stage) {
		held := s.getAll(s.peers[0])
		waiter := s.acquiring(s.ctx, s.semaphore(s.client))
		s.waitsForRoom()
		looks := s.looks()
		s.beginAfterCut()
		s.proxy.Cut()
		s.looksAgain(looks)
		s.waits(waiter)
		s.release(held[0])
		lease := s.watched(s.granted(waiter))
		s.end()
		s.hold(held[1], lease)
		s.releaseAll([]*recipes.Lease{held[1], lease})
	}},
	scenario{name: "wait for a permit, abandoned", play: func(s *stage) {
		held := s.getAll(s.peers[0])
		ctx, cancel := context.WithCancel(s.ctx)
		s.begin()
		waiter := s.acquiring(ctx, s.semaphore(s.client))
		s.waitsForRoom()
		cancel()
		require.ErrorIs(s, s.outcome(waiter).err, context.Canceled)
		s.eventually(func() bool { return len(s.pathsIn(turns)) == 0 }, "the end of the waiter's znode")
		s.end()
		s.hold(held...)
		s.releaseAll(held)
	}},
	scenario{name: "all permits, abandoned while they are taken", brief: true, play: func(s *stage) {
		s.exists()
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		s.begin()
		var lists atomic.Int64
		s.proxy.OnRequest(func(r faultproxy.Request) {
			if faultproxy.OpPath("getChildren2", taken)(r) && lists.Add(1) == 2 { // behind the transaction
				cancel()
			}
		})
		_, err := s.semaphore(s.client).AcquireN(ctx, permits)
		require.ErrorIs(s, err, context.Canceled)
		s.isCleared("delete")
	}},
	scenario{name: "a shared limit, its znode missing", brief: true, play: func(s *stage) {
		s.dir = path.Join(s.base, "a")
		s.exists()
		s.begin()
		lease := s.get(s.semaphore(s.client, semaphore.WithSharedLimit(s.limitPath())))
		s.end()
		data, _, err := s.world.admin.Get(s.limitPath())
		require.NoError(s, err)
		require.Equal(s, []byte{0, 0, 0, permits}, data)
		s.hold(lease)
		s.release(lease)
	}},
	scenario{name: "wait until a shared limit has grown", play: func(s *stage) {
		s.dir = path.Join(s.base, "a")
		s.setLimit(s.peers[0], 1)
		held := s.get(s.semaphore(s.peers[0], semaphore.WithSharedLimit(s.limitPath())))
		s.begin()
		waiter := s.acquiring(s.ctx, s.semaphore(s.client, semaphore.WithSharedLimit(s.limitPath())))
		s.waitsForRoom()
		s.waits(waiter)
		s.setLimit(s.peers[1], permits)
		lease := s.watched(s.granted(waiter))
		s.end()
		s.hold(held, lease)
		s.releaseAll([]*recipes.Lease{held, lease})
	}},
	scenario{name: "set a shared limit", play: func(s *stage) {
		s.dir = path.Join(s.base, "a")
		s.begin()
		s.setLimit(s.client, 1) // creates the znode
		s.setLimit(s.client, permits)
		s.end()
		data, _, err := s.world.admin.Get(s.limitPath())
		require.NoError(s, err)
		require.Equal(s, []byte{0, 0, 0, permits}, data)
	}},
	scenario{name: "participants of a semaphore", play: func(s *stage) {
		held := s.getAll(s.peers[0])
		asking := s.semaphore(s.client)
		s.begin()
		holders, err := asking.Participants(s.ctx)
		require.NoError(s, err)
		s.end()
		require.Len(s, holders, permits)
		s.releaseAll(held)
	}},
	scenario{name: "wait for a semaphore mutex", play: func(s *stage) {
		held := s.get(s.semaphoreMutex(s.peers[0]))
		s.begin()
		waiter := s.acquiring(s.ctx, s.semaphoreMutex(s.client))
		s.waitsForRoom()
		s.waits(waiter)
		s.release(held)
		lease := s.watched(s.granted(waiter))
		s.hold(lease)
		require.Greater(s, lease.FencingToken(), held.FencingToken())
		s.release(lease)
	}},
	scenario{name: "try for a semaphore mutex, held", brief: true, play: func(s *stage) {
		held := s.get(s.semaphoreMutex(s.peers[0]))
		s.begin()
		_, err := s.semaphoreMutex(s.client).TryAcquire(s.ctx)
		require.ErrorIs(s, err, recipes.ErrNotAcquired)
		s.end()
		s.hold(held)
		s.release(held)
	}},
)

// The directories of a semaphore, below its path.
const turns, taken = "locks", "leases"

// ofSemaphore are scenarios after which a client can have all permits at once. What is left of a turn is deleted in the
// background, because the permits are good meanwhile.
func ofSemaphore(all ...scenario) []scenario {
	for i := range all {
		all[i].part, all[i].background, all[i].dirs = "semaphore", true, []string{turns, taken}
		all[i].free = func(s *stage, client *recipes.Client) {
			leases, err := s.semaphore(client).TryAcquireN(s.ctx, permits)
			require.NoError(s, err, "somebody is in the way")
			s.releaseAll(leases)
		}
	}
	return all
}

func (s *stage) semaphore(client *recipes.Client, opts ...semaphore.Option) *semaphore.InterProcessSemaphore {
	l, err := semaphore.New(client, s.dir, permits, opts...)
	require.NoError(s, err)
	return l
}

func (s *stage) semaphoreMutex(client *recipes.Client) *semaphore.InterProcessSemaphoreMutex {
	l, err := semaphore.NewMutex(client, s.dir)
	require.NoError(s, err)
	return l
}

// limitPath is where a shared limit is, beside the semaphore.
func (s *stage) limitPath() string { return path.Join(s.base, "limit") }

func (s *stage) setLimit(client *recipes.Client, n int) {
	require.NoError(s, semaphore.SetSharedLimit(s.ctx, client, s.limitPath(), n))
}

// get acquires a lock, or a permit.
func (s *stage) get(lock multilock.Locker) *recipes.Lease {
	lease, err := lock.Acquire(s.ctx)
	require.NoError(s, err)
	return lease
}

// getAll acquires all permits.
func (s *stage) getAll(client *recipes.Client) []*recipes.Lease {
	leases, err := s.semaphore(client).AcquireN(s.ctx, permits)
	require.NoError(s, err)
	return leases
}

type results struct {
	leases []*recipes.Lease
	err    error
}

// gettingAll starts to acquire all permits in the background.
func (s *stage) gettingAll(ctx context.Context, client *recipes.Client) <-chan results {
	l, done := s.semaphore(client), make(chan results, 1)
	go func() { // ends with AcquireN, at the latest with the play's context
		leases, err := l.AcquireN(ctx, permits)
		done <- results{leases, err}
	}()
	return done
}

func (s *stage) grantedAll(waiter <-chan results) []*recipes.Lease {
	select {
	case r := <-waiter:
		require.NoError(s, r.err)
		return r.leases
	case <-s.ctx.Done():
		require.Fail(s, "a waiter has not returned")
		return nil
	}
}

// hold requires that these leases are all held permits, and valid.
func (s *stage) hold(leases ...*recipes.Lease) {
	var paths []string
	for _, lease := range leases {
		s.stands(lease)
		paths = append(paths, lease.Path())
	}
	require.ElementsMatch(s, paths, s.pathsIn(taken))
}

func (s *stage) releaseAll(leases []*recipes.Lease) {
	for _, lease := range leases {
		s.release(lease)
	}
}

// looks is how often the client was answered about the permits that are taken.
func (s *stage) looks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers["getChildren2 "+path.Join(s.dir, taken)]
}

// waitsForRoom waits until the client with the turn read the znode of its turn, and looked for a permit before and
// after it set a watch.
func (s *stage) waitsForRoom() {
	const before, watch, after = 1, 1, 1
	s.eventually(func() bool {
		own := s.pathsIn(turns)
		return s.looks() >= before+watch+after && len(own) > 0 && s.reads(own[len(own)-1]) > 0
	}, "a waiter in its turn")
}

// looksAgain waits until the client set another watch, and looked for a permit after that.
func (s *stage) looksAgain(looks int) {
	const watch, after = 1, 1
	s.eventually(func() bool { return s.looks() >= looks+watch+after }, "another look at the permits")
}
