package mutex_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
)

// Tokens grow over 1,000 holders, though the parent is removed now and then and the
// sequence numbers start at 0 again.
func TestTokensGrow(t *testing.T) {
	const rounds, contenders, each = 10, 4, 25
	path := lockPath(t)
	values := []*mutex.InterProcessMutex{newMutex(t, direct(t), path), newMutex(t, direct(t), path)}
	var mu sync.Mutex
	var tokens []int64
	var names []string
	for round := range rounds {
		errs := make(chan error, contenders)
		for i := range contenders {
			go func() { // joined through errs
				for range each {
					lease, err := values[i%len(values)].Acquire(t.Context())
					if err != nil {
						errs <- err
						return
					}
					mu.Lock()
					tokens, names = append(tokens, lease.FencingToken()), append(names, lease.Path())
					mu.Unlock()
					if err := lease.Release(); err != nil {
						errs <- err
						return
					}
				}
				errs <- nil
			}()
		}
		for range contenders {
			require.NoError(t, <-errs)
		}
		require.True(t, strings.HasSuffix(names[round*contenders*each], "-lock-0000000000"), "the numbers have started again")
		require.NoError(t, observer(t).Delete(path, -1))
	}
	require.Len(t, tokens, 1000)
	require.Positive(t, tokens[0])
	require.True(t, slices.IsSorted(tokens))
	require.Len(t, slices.Compact(slices.Clone(tokens)), len(tokens), "strictly")
}

// The parent may go whenever it is empty, as containers do: nobody fails, nobody
// gets in beside another, and tokens still grow.
func TestParentRemovedAtAnyTime(t *testing.T) {
	path, conn := lockPath(t)+"/nested/lock", observer(t)
	values := []*mutex.InterProcessMutex{newMutex(t, direct(t), path), newMutex(t, direct(t), path)}
	stop, removed := make(chan struct{}), make(chan int, 1)
	go func() { // joined through removed
		count := 0
		for {
			select {
			case <-stop:
				removed <- count
				return
			case <-t.Context().Done():
				return // the test has failed
			default:
			}
			for dir := path; dir != "/"; dir = dir[:max(strings.LastIndex(dir, "/"), 1)] {
				if conn.Delete(dir, -1) != nil {
					break
				}
				count++
			}
		}
	}()
	var inside atomic.Int32
	var tokens []int64 // guarded by the lock under test
	errs := make(chan error, 2)
	for _, m := range values {
		go func() { // joined through errs
			for range 150 {
				if err := m.Do(t.Context(), func(_ context.Context, lease *recipes.Lease) error {
					if inside.Add(1) != 1 {
						return errors.New("two holders")
					}
					tokens = append(tokens, lease.FencingToken())
					inside.Add(-1)
					return nil
				}); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range values {
		require.NoError(t, <-errs)
	}
	close(stop)
	require.Greater(t, <-removed, 10)
	require.Len(t, tokens, 300)
	require.True(t, slices.IsSorted(tokens))
	require.Len(t, slices.Compact(slices.Clone(tokens)), len(tokens), "strictly")
}

// The token is the czxid of the lease's znode: the time of its making, whoever has
// written to it since.
func TestTokenIsTheCzxid(t *testing.T) {
	path := lockPath(t)
	m := newMutex(t, direct(t), path)
	holder := acquire(t, m)
	waiter := waiting(t, testContext(t), m, path, 2)
	participants, err := m.Participants(testContext(t))
	require.NoError(t, err)
	_, err = observer(t).Set(participants[1].Path, []byte("touched"), -1)
	require.NoError(t, err)
	require.NoError(t, holder.Release())
	lease, err := outcome(t, waiter)
	require.NoError(t, err)
	_, stat, err := observer(t).Get(lease.Path())
	require.NoError(t, err)
	require.Equal(t, stat.Czxid, lease.FencingToken())
	require.Less(t, stat.Czxid, stat.Mzxid)
	require.NoError(t, lease.Release())
}

// guarded is a znode that is written in transactions with a lease's Check.
type guarded struct {
	path string
	conn *zk.Conn
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{path: lockPath(t) + "-data", conn: observer(t)}
	_, err := g.conn.Create(g.path, []byte("initial"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	return g
}

// write tries to write text under the lease's guard, past the lease's own client:
// what counts is the server's judgement.
func (g *guarded) write(lease *recipes.Lease, text string) error {
	_, err := g.conn.Multi(lease.Check(), &zk.SetDataRequest{Path: g.path, Data: []byte(text), Version: -1})
	return err
}

func (g *guarded) requireContent(t *testing.T, text string) {
	t.Helper()
	data, _, err := g.conn.Get(g.path)
	require.NoError(t, err)
	require.Equal(t, text, string(data))
}

// A transaction with Check goes through while the lease is held, and not after any
// of its ends, even if the lock is held again.
func TestCheckGuardsATransaction(t *testing.T) {
	ends := map[string]func(t *testing.T, client *recipes.Client, lease *recipes.Lease){
		"released": func(t *testing.T, _ *recipes.Client, lease *recipes.Lease) {
			t.Helper()
			require.NoError(t, lease.Release())
		},
		"session expired": func(t *testing.T, client *recipes.Client, _ *recipes.Lease) {
			t.Helper()
			require.NoError(t, zkadmin.Expire(testContext(t), ensemble.Shared(t).Server(0), client.Conn().SessionID()))
		},
		"znode deleted": func(t *testing.T, _ *recipes.Client, lease *recipes.Lease) {
			t.Helper()
			require.NoError(t, observer(t).Delete(lease.Path(), -1))
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			path, client := lockPath(t), direct(t)
			data, m := newGuarded(t), newMutex(t, client, path)
			lease := acquire(t, m)
			require.NoError(t, data.write(lease, "held"))
			data.requireContent(t, "held")
			end(t, client, lease)
			require.ErrorIs(t, data.write(lease, "too late"), zk.ErrNoNode)
			require.Error(t, ended(t, lease))
			next := acquire(t, m)
			require.ErrorIs(t, data.write(lease, "too late"), zk.ErrNoNode)
			data.requireContent(t, "held")
			require.NoError(t, data.write(next, "next"))
			data.requireContent(t, "next")
			require.NoError(t, next.Release())
		})
	}
}

// A request to give the lease back changes the znode, and not the guard: the lease
// is still held. The same with re-entrant leases.
func TestCheckAfterRevocation(t *testing.T) {
	path, client := lockPath(t), direct(t)
	data, m := newGuarded(t), newMutex(t, client, path)
	lease := acquire(t, m)
	inner, err := m.Acquire(lease.Context())
	require.NoError(t, err)
	before := lease.Check()
	require.NoError(t, revoke.New(direct(t)).AttemptRevoke(testContext(t), lease.Path()))
	select {
	case <-lease.Revoked():
	case <-testContext(t).Done():
		require.Fail(t, "the request is not seen")
	}
	require.NoError(t, data.write(lease, "lease"))
	require.NoError(t, data.write(inner, "inner"))
	data.requireContent(t, "inner")
	_, err = data.conn.Multi(before, &zk.SetDataRequest{Path: data.path, Data: []byte("made before"), Version: -1})
	require.NoError(t, err)
	require.NoError(t, lease.Release())
	require.NoError(t, data.write(inner, "still held"))
	require.NoError(t, inner.Release())
	require.ErrorIs(t, data.write(inner, "too late"), zk.ErrNoNode)
	data.requireContent(t, "still held")
}
