package cohort_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/testkit/schedule"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
)

// strangers use one lock in every way at once: cohorts with other bounds in two clients, plain mutexes of both, a multilock of
// cohorts, panics, re-entries, cancellations, revocations, expired sessions and lost connections.
type strangers struct {
	*locks.Fixture
	random  *rand.Rand // guarded by mu
	mu      sync.Mutex
	clients []*recipes.Client
	locks   [][]*mutex.InterProcessMutex // by client
	multi   []*multilock.InterProcessMultiLock
	holder  atomic.Pointer[recipes.Lease]
	grants  atomic.Int64

	granted, ended atomic.Int64 // reported by the hooks
}

func (s *strangers) intN(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

func (s *strangers) trace() *recipes.Trace {
	return &recipes.Trace{
		AcquireEnd: func(_ context.Context, e recipes.AcquireEnd) {
			if e.Err == nil {
				s.granted.Add(1)
			}
		},
		LeaseEnd: func(context.Context, recipes.LeaseEnd) { s.ended.Add(1) },
	}
}

// inside is the work of a holder. The previous holder released or lost its lease.
func (s *strangers) inside(lease *recipes.Lease) {
	if before := s.holder.Swap(lease); before != nil && before.Context().Err() == nil && lease.Context().Err() == nil {
		s.Errorf("two hold: %s %d and %s %d", before.Path(), before.FencingToken(), lease.Path(), lease.FencingToken())
	}
	s.grants.Add(1)
	timer := time.NewTimer(time.Duration(s.intN(5)) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-lease.Context().Done():
	case <-lease.Revoked():
	}
	s.holder.CompareAndSwap(lease, nil)
}

// use makes one use of the lock by a client.
func (s *strangers) use(ctx context.Context, client int) error {
	m := s.locks[client][s.intN(len(s.locks[client]))]
	switch s.intN(8) {
	case 0:
		defer func() { _ = recover() }()
		return m.Do(ctx, func(_ context.Context, lease *recipes.Lease) error {
			s.inside(lease)
			panic("of the test")
		})
	case 1:
		return m.Do(ctx, func(ctx context.Context, lease *recipes.Lease) error {
			other := s.locks[client][s.intN(len(s.locks[client]))]
			inner, err := other.Acquire(ctx)
			if err != nil {
				return err
			}
			s.inside(lease)
			return inner.Release()
		})
	case 2:
		return s.multi[client].Do(ctx, func(context.Context, *multilock.Lease) error { return nil })
	case 3:
		participants, err := m.Participants(ctx)
		if err == nil && len(participants) > 0 && s.intN(3) == 0 {
			err = revoke.New(s.clients[1-client]).AttemptRevoke(ctx, participants[0].Path)
		}
		return err
	case 4:
		lease, err := m.TryAcquire(ctx)
		if err != nil {
			return err
		}
		s.inside(lease)
		return lease.Release()
	default:
		lease, err := m.Acquire(ctx)
		if err != nil {
			return err
		}
		s.inside(lease)
		return lease.Release()
	}
}

// work uses the lock n times, with contexts some of which end soon.
func (s *strangers) work(client, n int) {
	for range n {
		limit := time.Hour
		if s.intN(3) == 0 {
			limit = time.Duration(s.intN(40)) * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(s.Context(), limit)
		err := s.use(ctx, client)
		isExpected := err == nil || errors.Is(err, context.DeadlineExceeded) && limit < time.Hour
		for _, target := range []error{recipes.ErrNotAcquired, recipes.ErrSessionLost, recipes.ErrNodeDeleted, recipes.ErrNodeNotDeleted, zk.ErrNoNode} {
			isExpected = isExpected || errors.Is(err, target)
		}
		if !isExpected {
			s.Errorf("client %d: %v", client, err)
		}
		cancel()
		bubble.Pause(time.Duration(s.intN(4)) * time.Millisecond)
	}
}

// trouble cuts a client's connection, or its server off, for so long that the session may end. A session is never ended without
// its client's knowledge, because two clients could hold for a moment.
func (s *strangers) trouble() {
	i := s.intN(2)
	if s.intN(3) > 0 {
		s.Srv.Disconnect()
		return
	}
	s.Srv.Stop(s.Srv.Addrs()[i])
	bubble.Pause(time.Duration(s.intN(int(2*testclient.SessionTimeout/time.Millisecond))) * time.Millisecond)
	require.NoError(s, s.Srv.Restart(s.Srv.Addrs()[i]))
}

// TestCohortAmongStrangers requires that no two holders overlap, that each grant has one end, and that nothing is left.
func TestCohortAmongStrangers(t *testing.T) {
	for seed := range uint64(testkit.Shorter(30, 5)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			locks.Run(t, func(f *locks.Fixture) { playStrangers(f, *schedule.FirstSeed+seed) })
		})
	}
}

func playStrangers(f *locks.Fixture, seed uint64) {
	s := &strangers{Fixture: f, random: rand.New(rand.NewPCG(seed, 3))}
	for i, bounds := range []mutex.Cohort{{MaxPasses: 3, Linger: 5 * time.Millisecond}, {MaxTenure: 3 * time.Millisecond}} {
		client := f.Connect(f.Srv.Addrs()[i], recipes.WithTrace(s.trace()))
		option := mutex.WithCohort(bounds)
		both, err := multilock.NewMutexes(client, []string{locks.Path, "/locks/b"}, option)
		require.NoError(f, err)
		s.clients, s.multi = append(s.clients, client), append(s.multi, both)
		s.locks = append(s.locks, []*mutex.InterProcessMutex{f.Mutex(client, option), f.Mutex(client, option), f.Mutex(client)})
	}
	var workers sync.WaitGroup
	for i := range 10 {
		workers.Go(func() { s.work(i%2, 60) }) // joined below
	}
	done := make(chan struct{})
	go func() { // ends with the workers
		workers.Wait()
		close(done)
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		case <-time.After(time.Duration(20+s.intN(400)) * time.Millisecond):
			s.trouble()
		}
	}
	bubble.Pass(time.Minute)
	require.Empty(f, f.Contenders())
	require.Empty(f, f.Srv.Children("/locks/b"))
	require.Equal(f, s.granted.Load(), s.ended.Load(), "each grant has one end")
	f.Logf("%d grants seen inside, %d by hooks", s.grants.Load(), s.granted.Load())
}
