package points_test

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// waitScenarios wait for a lock held by another client.
var waitScenarios = []scenario{
	{part: "wait", name: "wait for the holder", play: func(s *stage) {
		held := s.acquire(s.peers[0])
		s.begin()
		waiter := s.waiting(held.Path())
		s.takesOver(waiter, held)
	}},
	{part: "wait", name: "wait for two, the one between leaves", play: func(s *stage) {
		held := s.acquire(s.peers[0])
		ctx, leave := context.WithCancel(s.ctx)
		between := s.acquiring(ctx, s.mutex(s.peers[1]))
		s.eventually(func() bool { return len(s.paths()) == 2 }, "a waiter between")
		blocker := s.paths()[1]
		s.begin()
		waiter := s.acquiring(s.ctx, s.mutex(s.client))
		s.hasRead(blocker)
		leave()
		require.ErrorIs(s, s.outcome(between).err, context.Canceled)
		s.waitsBehind(held.Path())
		s.takesOver(waiter, held)
	}},
	{part: "wait", name: "wait for two, who leave before the own znode is read", play: func(s *stage) {
		held := s.acquire(s.peers[0])
		between := s.acquiring(s.ctx, s.mutex(s.peers[1]))
		s.eventually(func() bool { return len(s.paths()) == 2 }, "a waiter between")
		blocker := s.paths()[1]
		s.begin()
		waiter := s.acquiring(s.ctx, s.mutex(s.client))
		s.hasRead(blocker)
		s.release(held)
		next := s.granted(between)
		s.waits(waiter)
		s.release(next)
		lease := s.watched(s.granted(waiter))
		s.end()
		s.holds(lease)
		s.release(lease)
	}},
	{part: "wait", name: "wait, disconnected before", play: func(s *stage) {
		held := s.acquire(s.peers[0])
		waiter := s.waiting(held.Path())
		s.beginAfterCut()
		s.proxy.Cut()
		s.eventually(func() bool { return s.answersTo("getChildren2") > 1 && s.reads(held.Path()) > 1 }, "another look at the queue")
		s.takesOver(waiter, held)
	}},
	{part: "wait", name: "wait, the holder gone while disconnected", play: func(s *stage) {
		held := s.acquire(s.peers[0])
		waiter := s.waiting(held.Path())
		s.beginAfterCut()
		s.proxy.Refuse(true)
		s.proxy.Cut()
		s.eventually(func() bool { return s.client.State() == recipes.Suspended }, "the disconnection")
		s.release(held)
		s.proxy.Refuse(false)
		lease := s.granted(waiter)
		s.end()
		s.holds(lease)
		s.release(lease)
	}},
	{part: "wait", name: "wait, abandoned", background: true, play: func(s *stage) {
		held := s.acquire(s.peers[0])
		ctx, cancel := context.WithCancel(s.ctx)
		s.begin()
		waiter := s.acquiring(ctx, s.mutex(s.client))
		s.waitsBehind(held.Path())
		cancel()
		require.ErrorIs(s, s.outcome(waiter).err, context.Canceled)
		s.eventually(func() bool { return len(s.paths()) == 1 }, "the end of the waiter's znode")
		s.end()
		require.Equal(s, []string{held.Path()}, s.paths())
		s.release(held)
	}},
	{part: "wait", name: "hand over within a client", play: func(s *stage) {
		s.exists()
		s.begin()
		m := s.mutex(s.client)
		first := s.watched(s.acquire(s.client))
		second := s.acquiring(s.ctx, m)
		s.eventually(func() bool { return len(s.paths()) == 2 }, "the waiter's znode")
		s.waitsBehind(first.Path()) // whose watch it shares
		s.waits(second)
		s.release(first)
		lease := s.granted(second)
		s.holds(lease)
		require.Greater(s, lease.FencingToken(), first.FencingToken())
		s.release(lease)
	}},
	{part: "wait", name: "participants", play: func(s *stage) {
		held := s.acquire(s.peers[0], mutex.WithID("holder"))
		waiter := s.acquiring(s.ctx, s.mutex(s.peers[1], mutex.WithID("waiter")))
		s.eventually(func() bool { return len(s.paths()) == 2 }, "the waiter's znode")
		s.begin()
		queue, err := s.mutex(s.client).Participants(s.ctx)
		require.NoError(s, err)
		s.end()
		require.Len(s, queue, 2)
		s.requireLeader("holder", held, queue[0])
		require.Equal(s, "waiter", queue[1].ID)
		s.release(held)
		s.release(s.granted(waiter))
	}},
}

type result struct {
	lease *recipes.Lease
	err   error
}

// acquiring starts an Acquire in the background.
func (s *stage) acquiring(ctx context.Context, m multilock.Locker) <-chan result {
	done := make(chan result, 1)
	go func() { // ends with Acquire, at the latest with the play's context
		lease, err := m.Acquire(ctx)
		done <- result{lease, err}
	}()
	return done
}

// waiting makes the client wait behind a holder, and returns after the answers about the holder's and its own znode.
func (s *stage) waiting(blocker string) <-chan result {
	waiter := s.acquiring(s.ctx, s.mutex(s.client))
	s.waitsBehind(blocker)
	s.waits(waiter)
	return waiter
}

// takesOver requires that a waiter gets the lock when its holder releases it, and not before.
func (s *stage) takesOver(waiter <-chan result, held *recipes.Lease) {
	s.waits(waiter)
	s.holds(held)
	s.release(held)
	lease := s.granted(waiter)
	s.end()
	s.holds(lease)
	require.Greater(s, lease.FencingToken(), held.FencingToken())
	s.release(lease)
}

// waits checks that a waiter still does.
func (s *stage) waits(waiter <-chan result) {
	select {
	case r := <-waiter:
		require.Failf(s, "a waiter has returned", "%v", r.err)
	default:
	}
}

func (s *stage) outcome(waiter <-chan result) result {
	select {
	case r := <-waiter:
		return r
	case <-s.ctx.Done():
		require.Fail(s, "a waiter has not returned")
		return result{}
	}
}

func (s *stage) granted(waiter <-chan result) *recipes.Lease {
	r := s.outcome(waiter)
	require.NoError(s, r.err)
	return r.lease
}
