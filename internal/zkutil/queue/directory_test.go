package queue_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// replaceDirectory deletes the lock's directory with its contents, and creates another one whose next child has a given
// number.
func replaceDirectory(f *locks.Fixture, next int32) {
	f.Srv.Delete(locks.Path)
	f.Srv.Put(locks.Path, nil)
	f.Srv.SetSequence(locks.Path, next)
}

// acquireAndRelease acquires and releases the lock, and returns the number of the znode.
func acquireAndRelease(f *locks.Fixture, client *recipes.Client) (number int32) {
	f.Helper()
	lease := bubble.Acquire(f.T, f.Mutex(client).Acquire)
	require.NoError(f, lease.Release())
	bubble.Pass(bubble.Moment)
	return numberOf(f, lease)
}

func numberOf(f *locks.Fixture, lease *recipes.Lease) int32 {
	f.Helper()
	number, err := strconv.Atoi(lease.Path()[len(lease.Path())-10:])
	require.NoError(f, err)
	return int32(number)
}

// The servers remove the directories that a lock made, once they are empty. Servers before 3.5 have no containers, and keep them.
func TestDirectoriesAreContainers(t *testing.T) {
	for dialect, left := range map[zktest.Dialect][]string{zktest.ZooKeeper39: nil, zktest.ZooKeeper34: {"a"}} {
		locks.Run(t, func(f *locks.Fixture) {
			acquireAndRelease(f, f.Client())
			for range 3 { // a directory at a time
				f.Srv.Reap()
			}
			require.Equal(f, left, f.Srv.Children("/locks"))
		}, zktest.WithDialect(dialect))
	}
}

// A client that lost the permission to read the directory does not get the lock that another client holds, for any number of
// attempts, and although its znode has the number after its latest one, because the directory may be replaced without an
// event.
func TestDirectoryReplacedAfterReadWasTaken(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		f.Srv.Put(locks.Path, nil) // no container, which the servers would remove between two acquisitions
		client := f.Troubled()
		var last int32
		for range 10 {
			last = acquireAndRelease(f, client)
		}
		blind := zk.WorldACL(zk.PermAll &^ zk.PermRead)
		_, err := f.Client().Conn().SetACL(locks.Path, blind, -1)
		require.NoError(f, err)
		for range 100 { // 10 T
			bubble.Pass(testclient.SessionTimeout / 10)
			if lease, err := f.Mutex(client).TryAcquire(f.Context()); err != nil {
				require.ErrorIs(f, err, zk.ErrNoAuth)
			} else {
				last = numberOf(f, lease)
				require.NoError(f, lease.Release())
			}
		}
		replaceDirectory(f, last)
		other := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
		_, err = f.Mutex(client).TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		f.Stands(other)
	})
}

// A client that got no event of the replacement of the directory does not get the lock that another client holds.
func TestDirectoryReplacedUnheard(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Troubled()
		var last int32
		for range 10 {
			last = acquireAndRelease(f, client)
		}
		f.Srv.DropEvent(1, client.Conn().SessionID())
		replaceDirectory(f, last)
		other := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
		_, err := f.Mutex(client).TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		f.Stands(other)
	})
}

// Every acquisition lists the queue after its create, even if the client never found another contender there.
func TestEveryAcquisitionListsTheQueue(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		acquireAndRelease(f, client)
		for range 20 {
			log := f.Srv.Observe()
			require.NoError(f, bubble.Acquire(f.T, f.Mutex(client).Acquire).Release())
			require.Equal(f, []zktest.Op{zktest.OpCreate2, zktest.OpGetChildren2, zktest.OpDelete}, bubble.Operations(log))
			log.Stop()
			bubble.Pass(bubble.Moment)
		}
	})
}

// For all events between the acquisitions of a client, it gets the lock if and only if no contender is ahead.
func TestAcquisitionsAmongStrangers(t *testing.T) {
	for seed := range testkit.Shorter[uint64](200, 20) {
		locks.Run(t, func(f *locks.Fixture) {
			r := rand.New(rand.NewPCG(seed, 0))
			client, stranger := f.Troubled(), f.Client()
			for range 30 {
				var last int32
				for range 1 + r.IntN(4) {
					last = acquireAndRelease(f, client)
				}
				intrude(f, r, client, stranger, last)
				isFree := len(f.Contenders()) == 0
				lease, err := f.Mutex(client).TryAcquire(f.Context())
				if !isFree {
					require.ErrorIs(f, err, recipes.ErrNotAcquired, "seed %d", seed)
					f.Srv.Delete(locks.Path)
					continue
				}
				require.NoError(f, err, "seed %d", seed)
				require.Equal(f, []string{lease.Path()}, f.Contenders(), "seed %d", seed)
				require.NoError(f, lease.Release())
			}
		})
	}
}

// intrude has strangers, the servers or an operator do something while a client does not have the lock. last is the number of the
// client's latest znode.
func intrude(f *locks.Fixture, r *rand.Rand, client, stranger *recipes.Client, last int32) {
	f.Helper()
	m := f.Mutex(stranger)
	switch r.IntN(8) {
	case 0:
	case 1:
		bubble.Acquire(f.T, m.Acquire)
	case 2:
		require.NoError(f, bubble.Acquire(f.T, m.Acquire).Release())
	case 3:
		replaceDirectory(f, last+r.Int32N(3))
		bubble.Acquire(f.T, m.Acquire)
	case 4:
		replaceDirectory(f, last+r.Int32N(3))
	case 5:
		f.Srv.Put(fmt.Sprintf("%s/by-hand-lock-%010d", locks.Path, r.Int32N(last+1)), nil)
	case 6:
		f.CutAndReconnect(client)
	case 7:
		f.ExpireUnheard(client)
		bubble.Acquire(f.T, m.Acquire)
	}
	bubble.Pass(bubble.Moment)
}

// Two simultaneous callers get consecutive numbers. The second one waits.
func TestTwoCallersOfOneClientTogether(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Troubled()
		acquireAndRelease(f, client)
		defer f.Srv.Delay(zktest.OpCreate2, time.Second)() // so that both requests are sent before the first answer
		first, second := bubble.Start(f.Context(), f.Mutex(client).Acquire), bubble.Start(f.Context(), f.Mutex(client).Acquire)
		bubble.Pass(10 * time.Second)
		require.Equal(f, 1, len(first)+len(second))
		if len(first) == 0 {
			first, second = second, first
		}
		require.NoError(f, bubble.Granted(f, first).Release())
		require.NoError(f, bubble.Granted(f, second).Release())
	})
}
