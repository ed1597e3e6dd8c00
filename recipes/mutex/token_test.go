package mutex_test

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
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Tokens grow over 1,000 holders, though the parent is removed now and then and the
// sequence numbers start at 0 again.
func TestTokensGrow(t *testing.T) {
	const rounds, contenders, each = 10, 4, 25
	inBubble(t, func(f *fixture) {
		values := []*mutex.InterProcessMutex{f.mutex(f.client()), f.mutex(f.troubled())}
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
			f.srv.Delete(lock)
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

// The parent may go whenever it is empty, as containers do: nobody fails, nobody
// gets in beside another, and tokens still grow.
func TestParentRemovedAtAnyTime(t *testing.T) {
	const path = "/top/nested/lock"
	inBubble(t, func(f *fixture) {
		values := []*mutex.InterProcessMutex{mutexOn(f.T, f.client(), path), mutexOn(f.T, f.troubled(), path)}
		remover := f.client().Conn()
		f.srv.Delay(zktest.OpAny, 100*time.Microsecond)
		stop, removed := make(chan struct{}), make(chan int, 1)
		go func() { removed <- removeUntil(remover, path, stop) }() // joined through removed
		var section judge.Section
		var work sync.WaitGroup
		for i, m := range values {
			work.Go(func() {
				dice := rand.New(rand.NewPCG(*firstSeed, uint64(i)))
				for range 150 {
					pause(time.Duration(dice.IntN(2000)) * time.Microsecond) // the lock is often free
					if err := m.Do(f.Context(), func(_ context.Context, lease *recipes.Lease) error {
						section.Enter(lease.FencingToken())
						pause(moment / 10)
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

// removeUntil removes a znode and its parents, as far as they are empty, again and again until stop
// is closed. It returns how many it has removed.
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

// The token is the czxid of the lease's znode: the transaction of its creation. Later writes to the
// znode do not change it.
func TestTokenIsTheCzxid(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.mutex(f.client())
		holder := acquire(f.T, m)
		waiter := f.waiting(f.Context(), m)
		f.srv.Put(f.queue()[1], []byte("touched"))
		require.NoError(f, holder.Release())
		lease := f.granted(waiter)
		_, stat, _ := f.srv.Get(lease.Path())
		require.Equal(f, stat.Czxid, lease.FencingToken())
		require.Less(f, stat.Czxid, stat.Mzxid)
		require.NoError(f, lease.Release())
	})
}

// guarded is a znode that is written in transactions with a lease's Check.
type guarded struct {
	f    *fixture
	conn *zk.Conn
}

const guardedPath = "/data"

func newGuarded(f *fixture) *guarded {
	f.srv.Put(guardedPath, []byte("initial"))
	return &guarded{f, f.client().Conn()}
}

// write tries to write text under the lease's guard, past the lease's own client:
// what counts is the server's judgement.
func (g *guarded) write(check *zk.CheckVersionRequest, text string) error {
	_, err := g.conn.Multi(check, &zk.SetDataRequest{Path: guardedPath, Data: []byte(text), Version: -1})
	return err
}

func (g *guarded) requireContent(text string) {
	g.f.Helper()
	data, _, _ := g.f.srv.Get(guardedPath)
	require.Equal(g.f, text, string(data))
}

// A transaction with Check goes through while the lease is held, and not after any
// of its ends, even if the lock is held again.
func TestCheckGuardsATransaction(t *testing.T) {
	for name, end := range map[string]func(f *fixture, client *recipes.Client, lease *recipes.Lease){
		"released": func(f *fixture, _ *recipes.Client, lease *recipes.Lease) { require.NoError(f, lease.Release()) },
		"session expired": func(f *fixture, client *recipes.Client, _ *recipes.Lease) {
			f.srv.Expire(client.Conn().SessionID())
		},
		"znode deleted": func(f *fixture, _ *recipes.Client, lease *recipes.Lease) { f.srv.Delete(lease.Path()) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				client := f.client()
				data, m := newGuarded(f), f.mutex(client)
				lease := acquire(f.T, m)
				require.NoError(f, data.write(lease.Check(), "held"))
				data.requireContent("held")
				end(f, client, lease)
				require.ErrorIs(f, data.write(lease.Check(), "too late"), zk.ErrNoNode)
				require.Error(f, f.cause(lease))
				next := acquire(f.T, m)
				require.ErrorIs(f, data.write(lease.Check(), "too late"), zk.ErrNoNode)
				data.requireContent("held")
				require.NoError(f, data.write(next.Check(), "next"))
				data.requireContent("next")
				require.NoError(f, next.Release())
			})
		})
	}
}

// A request to give the lease back changes the znode, and not the guard: the lease
// is still held. The same with re-entrant leases.
func TestCheckAfterRevocation(t *testing.T) {
	inBubble(t, func(f *fixture) {
		data, m := newGuarded(f), f.mutex(f.client())
		lease := acquire(f.T, m)
		inner, err := m.Acquire(lease.Context())
		require.NoError(f, err)
		before := lease.Check()
		require.NoError(f, revoke.New(f.client()).AttemptRevoke(f.Context(), lease.Path()))
		require.True(f, isRevoked(lease))
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
