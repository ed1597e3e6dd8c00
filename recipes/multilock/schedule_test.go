package multilock_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/schedule"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

// lastOf is a multilock that the schedules see as its last part: the schedules judge the lock at one path, and a multilock holds its last part
// exactly while it holds all.
type lastOf struct {
	schedule.Lock // the last part alone

	all *multilock.InterProcessMultiLock
}

// insideKey is the key of a context of a lease of a multilock, in which the last part re-enters.
type insideKey struct{}

func (l lastOf) Acquire(ctx context.Context) (*recipes.Lease, error) {
	if ctx.Value(insideKey{}) != nil {
		return l.Lock.Acquire(ctx)
	}
	return last(l.all.Acquire(context.WithValue(ctx, insideKey{}, true)))
}

func (l lastOf) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return last(l.all.TryAcquire(context.WithValue(ctx, insideKey{}, true)))
}

func (l lastOf) Do(ctx context.Context, fn func(context.Context, *recipes.Lease) error) error {
	return l.all.Do(ctx, func(ctx context.Context, lease *multilock.Lease) error {
		parts := lease.Leases()
		return fn(ctx, parts[len(parts)-1])
	})
}

// last returns the lease of the last part, at whose end the others are released. The last part is released by the schedule.
func last(lease *multilock.Lease, err error) (*recipes.Lease, error) {
	if err != nil {
		return nil, err
	}
	parts := lease.Leases()
	part, others := parts[len(parts)-1], parts[:len(parts)-1]
	context.AfterFunc(part.Context(), func() { // ends before the bubble does
		for _, other := range others {
			_ = other.Release()
		}
	})
	return part, nil
}

// Multilocks of two and three mutexes, beside a mutex, under the faults of schedule.Run: one holder of the last part at a time, in the order
// of its queue, and nothing is left in any queue.
func TestFaultSchedules(t *testing.T) {
	schedule.Run(t, schedule.Recipe{
		Package: "multilock",
		Beside:  []string{"/locks/1", "/locks/2"},
		NewNumbered: func(tb testing.TB, client *recipes.Client, path string, number int) []schedule.Lock {
			tb.Helper()
			mutexOn := func(path string) *mutex.InterProcessMutex {
				m, err := mutex.New(client, path)
				require.NoError(tb, err)
				return m
			}
			own := mutexOn(path)
			if number == 2 {
				return []schedule.Lock{own}
			}
			parts := []multilock.Locker{mutexOn("/locks/1"), mutexOn("/locks/2"), own}
			all, err := multilock.New(parts[number:]...)
			require.NoError(tb, err)
			return []schedule.Lock{lastOf{own, all}}
		},
	})
}

// The same with write locks and read locks.
func TestFaultSchedulesOfReadWriteLocks(t *testing.T) {
	schedule.Run(t, schedule.Recipe{
		Package:  "multilock",
		Fewer:    true,
		Beside:   []string{"/locks/1", "/locks/2"},
		IsShared: func(path string) bool { return strings.Contains(path, "__READ__") },
		NewNumbered: func(tb testing.TB, client *recipes.Client, path string, number int) []schedule.Lock {
			tb.Helper()
			pairOn := func(path string) *rwlock.InterProcessReadWriteLock {
				l, err := rwlock.New(client, path)
				require.NoError(tb, err)
				return l
			}
			first, second, pair := pairOn("/locks/1"), pairOn("/locks/2"), pairOn(path)
			if number == 2 {
				return []schedule.Lock{pair.WriteLock(), pair.ReadLock()}
			}
			writes := []multilock.Locker{first.WriteLock(), second.ReadLock(), pair.WriteLock()}
			reads := []multilock.Locker{first.ReadLock(), second.WriteLock(), pair.ReadLock()}
			all, err := multilock.New(writes[number:]...)
			require.NoError(tb, err)
			allReads, err := multilock.New(reads[number:]...)
			require.NoError(tb, err)
			return []schedule.Lock{lastOf{pair.WriteLock(), all}, lastOf{pair.ReadLock(), allReads}}
		},
	})
}
