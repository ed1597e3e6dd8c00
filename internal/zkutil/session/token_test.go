package session_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/testkit/schedule"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Tokens grow over 1,000 holders, though the parent is removed now and then and the
// sequence numbers start at 0 again.
func TestTokensGrow(t *testing.T) {
	const rounds, contenders, each = 10, 4, 25
	locks.Run(t, func(f *locks.Fixture) {
		values := []*mutex.InterProcessMutex{f.Mutex(f.Client()), f.Mutex(f.Troubled())}
		var section judge.Section
		for range rounds {
			var names []string // guarded by the lock under test
			var work sync.WaitGroup
			hold := func(lease *recipes.Lease) {
				section.Enter(lease.FencingToken())
				names = append(names, lease.Path())
				section.Leave()
			}
			for i := range contenders {
				work.Go(func() {
					if err := holdTimes(f.Context(), values[i%len(values)], each, hold); err != nil {
						f.Error(err)
					}
				})
			}
			work.Wait()
			require.True(f, strings.HasSuffix(names[0], "-lock-0000000000"), "the numbers have started again")
			f.Srv.Delete(locks.Path)
		}
		require.Equal(f, rounds*contenders*each, section.Entered())
		require.NoError(f, section.Err())
	})
}

// holdTimes acquires and releases a lock n times, and calls hold while it is held.
func holdTimes(ctx context.Context, m *mutex.InterProcessMutex, n int, hold func(*recipes.Lease)) error {
	for range n {
		lease, err := m.Acquire(ctx)
		if err != nil {
			return err
		}
		hold(lease)
		if err := lease.Release(); err != nil {
			return err
		}
	}
	return nil
}

// The parent may be removed whenever it is empty, like a container. No acquisition fails, no two holders overlap, and
// tokens still grow.
func TestParentRemovedAtAnyTime(t *testing.T) {
	const path = "/top/nested/lock"
	locks.Run(t, func(f *locks.Fixture) {
		values := []*mutex.InterProcessMutex{locks.MutexOn(f.T, f.Client(), path), locks.MutexOn(f.T, f.Troubled(), path)}
		remover := f.Client().Conn()
		f.Srv.Delay(zktest.OpAny, 100*time.Microsecond)
		stop, removed := make(chan struct{}), make(chan int, 1)
		go func() { removed <- removeUntil(remover, path, stop) }() // joined through removed
		var section judge.Section
		var work sync.WaitGroup
		for i, m := range values {
			work.Go(func() {
				dice := rand.New(rand.NewPCG(*schedule.FirstSeed, uint64(i)))
				for range 150 {
					bubble.Pause(time.Duration(dice.IntN(2000)) * time.Microsecond) // the lock is often free
					if err := m.Do(f.Context(), func(_ context.Context, lease *recipes.Lease) error {
						section.Enter(lease.FencingToken())
						bubble.Pause(bubble.Moment / 10)
						section.Leave()
						return nil
					}); err != nil {
						f.Error(err)
						return
					}
				}
			})
		}
		work.Wait()
		close(stop)
		require.Greater(f, <-removed, 10)
		require.Equal(f, 300, section.Entered())
		require.NoError(f, section.Err())
	})
}

// removeUntil removes a znode and its parents, if they are empty, again and again until stop is closed. It returns
// the number of removals.
func removeUntil(conn *zk.Conn, path string, stop <-chan struct{}) (removed int) {
	for {
		select {
		case <-stop:
			return removed
		case <-time.After(30 * time.Microsecond): // so often at every step of the others
		}
		for dir := path; dir != "/" && conn.Delete(dir, -1) == nil; dir = dir[:max(strings.LastIndex(dir, "/"), 1)] {
			removed++
		}
	}
}

// The token is the czxid of the lease's znode, which is the transaction of its creation. Later writes to the znode do
// not change it.
func TestTokenIsTheCzxid(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		holder := bubble.Acquire(f.T, m.Acquire)
		waiter := f.Waiting(f.Context(), m)
		f.Srv.Put(f.Contenders()[1], []byte("touched"))
		require.NoError(f, holder.Release())
		lease := bubble.Granted(f, waiter)
		_, stat, _ := f.Srv.Get(lease.Path())
		require.Equal(f, stat.Czxid, lease.FencingToken())
		require.Less(f, stat.Czxid, stat.Mzxid)
		require.NoError(f, lease.Release())
	})
}

// guarded is a znode that is written in transactions with a lease's Check.
type guarded struct {
	f    *locks.Fixture
	conn *zk.Conn
}

const guardedPath = "/data"

func newGuarded(f *locks.Fixture) *guarded {
	f.Srv.Put(guardedPath, []byte("initial"))
	return &guarded{f, f.Client().Conn()}
}

// write tries to write text under the lease's guard, past the lease's own client, because only the server's decision
// counts.
func (g *guarded) write(check *zk.CheckVersionRequest, text string) error {
	_, err := g.conn.Multi(check, &zk.SetDataRequest{Path: guardedPath, Data: []byte(text), Version: -1})
	return err
}

func (g *guarded) requireContent(text string) {
	g.f.Helper()
	data, _, _ := g.f.Srv.Get(guardedPath)
	require.Equal(g.f, text, string(data))
}

// A transaction with Check succeeds while the lease is held, and fails after each kind of end, even if the lock is
// held again.
func TestCheckGuardsATransaction(t *testing.T) {
	for name, end := range map[string]func(f *locks.Fixture, client *recipes.Client, lease *recipes.Lease){
		"released": func(f *locks.Fixture, _ *recipes.Client, lease *recipes.Lease) { require.NoError(f, lease.Release()) },
		"session expired": func(f *locks.Fixture, client *recipes.Client, _ *recipes.Lease) {
			f.Srv.Expire(client.Conn().SessionID())
		},
		"znode deleted": func(f *locks.Fixture, _ *recipes.Client, lease *recipes.Lease) { f.Srv.Delete(lease.Path()) },
	} {
		t.Run(name, func(t *testing.T) {
			locks.Run(t, func(f *locks.Fixture) {
				client := f.Client()
				data, m := newGuarded(f), f.Mutex(client)
				lease := bubble.Acquire(f.T, m.Acquire)
				require.NoError(f, data.write(lease.Check(), "held"))
				data.requireContent("held")
				end(f, client, lease)
				require.ErrorIs(f, data.write(lease.Check(), "too late"), zk.ErrNoNode)
				require.Error(f, f.Cause(lease))
				next := bubble.Acquire(f.T, m.Acquire)
				require.ErrorIs(f, data.write(lease.Check(), "too late"), zk.ErrNoNode)
				data.requireContent("held")
				require.NoError(f, data.write(next.Check(), "next"))
				data.requireContent("next")
				require.NoError(f, next.Release())
			})
		})
	}
}

// A revocation changes the znode, and not the guard, because the lease is still held. The same holds for re-entrant
// leases.
func TestCheckAfterRevocation(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		data, m := newGuarded(f), f.Mutex(f.Client())
		lease := bubble.Acquire(f.T, m.Acquire)
		inner, err := m.Acquire(lease.Context())
		require.NoError(f, err)
		before := lease.Check()
		require.NoError(f, revoke.New(f.Client()).AttemptRevoke(f.Context(), lease.Path()))
		require.True(f, locks.IsRevoked(lease))
		require.NoError(f, data.write(lease.Check(), "lease"))
		require.NoError(f, data.write(inner.Check(), "inner"))
		data.requireContent("inner")
		require.NoError(f, data.write(before, "made before"))
		require.NoError(f, lease.Release())
		require.NoError(f, data.write(inner.Check(), "still held"))
		require.NoError(f, inner.Release())
		require.ErrorIs(f, data.write(inner.Check(), "too late"), zk.ErrNoNode)
		data.requireContent("still held")
	})
}
