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

// replaceDirectory deletes the lock's directory with all that is there, and makes another one whose next child gets a number.
func replaceDirectory(f *locks.Fixture, next int32) {
	f.Srv.Delete(locks.Path)
	f.Srv.Put(locks.Path, nil)
	f.Srv.SetSequence(locks.Path, next)
}

// acquireAndRelease acquires and releases the lock, and returns the number of the znode.
func acquireAndRelease(f *locks.Fixture, client *recipes.Client) (number int32) {
	f.Helper()
	lease := locks.Acquire(f.T, f.Mutex(client))
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

// A client whose right to read the directory was taken away does not get the lock that another client holds, however often it has tried
// since, and although its znode has the number behind its latest one: the directory may have been replaced unheard.
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
		other := locks.Acquire(f.T, f.Mutex(f.Client()))
		_, err = f.Mutex(client).TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		f.Stands(other)
	})
}

// A client that was not told that the directory was replaced does not get the lock that another client holds.
func TestDirectoryReplacedUnheard(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Troubled()
		var last int32
		for range 10 {
			last = acquireAndRelease(f, client)
		}
		f.Srv.DropEvent(1, client.Conn().SessionID())
		replaceDirectory(f, last)
		other := locks.Acquire(f.T, f.Mutex(f.Client()))
		_, err := f.Mutex(client).TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		f.Stands(other)
	})
}

// Every acquisition lists the queue behind its create, however often the client has found nobody there.
func TestEveryAcquisitionListsTheQueue(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		acquireAndRelease(f, client)
		for range 20 {
			log := f.Srv.Observe()
			require.NoError(f, locks.Acquire(f.T, f.Mutex(client)).Release())
			require.Equal(f, []zktest.Op{zktest.OpCreate2, zktest.OpGetChildren2, zktest.OpDelete}, bubble.Operations(log))
			log.Stop()
			bubble.Pass(bubble.Moment)
		}
	})
}

// Whatever happens between the acquisitions of a client, it gets the lock if and only if nobody is ahead.
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
		locks.Acquire(f.T, m)
	case 2:
		require.NoError(f, locks.Acquire(f.T, m).Release())
	case 3:
		replaceDirectory(f, last+r.Int32N(3))
		locks.Acquire(f.T, m)
	case 4:
		replaceDirectory(f, last+r.Int32N(3))
	case 5:
		f.Srv.Put(fmt.Sprintf("%s/by-hand-lock-%010d", locks.Path, r.Int32N(last+1)), nil)
	case 6:
		f.CutAndReconnect(client)
	case 7:
		f.ExpireUnheard(client)
		locks.Acquire(f.T, m)
	}
	bubble.Pass(bubble.Moment)
}

// Two callers who come together are numbered one behind the other. The second one waits.
func TestTwoCallersOfOneClientTogether(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Troubled()
		acquireAndRelease(f, client)
		defer f.Srv.Delay(zktest.OpCreate2, time.Second)() // so that both have asked before either is answered
		first, second := locks.Acquiring(f.Context(), f.Mutex(client)), locks.Acquiring(f.Context(), f.Mutex(client))
		bubble.Pass(10 * time.Second)
		require.Equal(f, 1, len(first)+len(second))
		if len(first) == 0 {
			first, second = second, first
		}
		require.NoError(f, f.Granted(first).Release())
		require.NoError(f, f.Granted(second).Release())
	})
}
