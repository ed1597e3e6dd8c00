package interop_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

func goSemaphore(t *testing.T, path string, limit int, opts ...semaphore.Option) *semaphore.InterProcessSemaphore {
	t.Helper()
	s, err := semaphore.New(connect(t, options{}), path, limit, opts...)
	require.NoError(t, err)
	return s
}

// permits acquires n permits.
func permits(s *semaphore.InterProcessSemaphore, n int) func(context.Context) ([]*recipes.Lease, error) {
	return func(ctx context.Context) ([]*recipes.Lease, error) { return s.AcquireN(ctx, n) }
}

// The limit holds for both languages together, each waits for the other, and each sees the permits of the other.
func TestSemaphore(t *testing.T) {
	t.Parallel()
	path := testkit.Path(t)
	own, java := goSemaphore(t, path, 3), newJavaMember(t, "semaphore", path, "3")
	held, err := own.AcquireN(testkit.Context(t), 2)
	require.NoError(t, err)
	require.Len(t, java.do(t, "take", "1"), 1)
	_, err = own.TryAcquire(testkit.Context(t))
	require.ErrorIs(t, err, recipes.ErrNotAcquired)
	other := newJavaMember(t, "semaphore", path, "3")
	require.Empty(t, other.do(t, "trytake", "1", "0"))
	require.Len(t, other.do(t, "holders"), 3)
	participants(t, own, 3)

	taking := other.starts("take", "1") // waits for ours, and makes others wait
	queued(t, path+"/locks", 1)
	waiting := acquiring(t, permits(goSemaphore(t, path, 3), 2))
	queued(t, path+"/locks", 2)
	require.NoError(t, held[0].Release())
	testkit.Receive(t, taking, "Java takes one")
	require.NoError(t, held[1].Release())
	require.Empty(t, waiting)
	other.do(t, "give")
	two := testkit.Receive(t, waiting, "ours")
	require.Len(t, two, 2)

	java.do(t, "give")
	for _, lease := range two {
		require.NoError(t, lease.Release())
	}
	require.Empty(t, queue(t, path+"/leases"))
	queued(t, path+"/locks", 0) // what is left of a turn is deleted in the background
}

// Curator takes several permits one by one, and releases its turn in between. It holds a part, and waits behind our request for
// all. Ours gives up when its context ends, and never held a permit.
func TestCuratorTakesPermitsOneByOne(t *testing.T) {
	t.Parallel()
	path := testkit.Path(t)
	java, own := newJavaMember(t, "semaphore", path, "2"), goSemaphore(t, path, 2)
	held := acquired(t, own.Acquire)
	java.do(t, "take", "1")
	other := newJavaMember(t, "semaphore", path, "2")
	taking := other.starts("take", "2")
	queued(t, path+"/leases", 3)
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	waiting := make(chan error, 1)
	go func() { // ends with ctx; joined below
		_, err := own.AcquireN(ctx, 2)
		waiting <- err
	}()
	queued(t, path+"/locks", 2)
	require.NoError(t, held.Release())
	java.do(t, "give")
	testkit.Eventually(t, func() bool { return len(queue(t, path+"/leases")) == 1 && len(queue(t, path+"/locks")) == 2 }, "Java has a part, and waits for the rest")
	require.Empty(t, waiting)
	cancel()
	require.ErrorIs(t, testkit.Receive(t, waiting, "the end of the wait"), context.Canceled)
	testkit.Receive(t, taking, "Java takes two")
	other.do(t, "give")
}

// A limit shared by both languages wakes waiters in both.
func TestSharedLimit(t *testing.T) {
	t.Parallel()
	path, limit := testkit.Path(t), testkit.Path(t)
	client := connect(t, options{})
	require.NoError(t, semaphore.SetSharedLimit(testkit.Context(t), client, limit, 1))
	own, java := goSemaphore(t, path, 7, semaphore.WithSharedLimit(limit)), newJavaMember(t, "semaphore", path, limit)
	first := acquired(t, own.Acquire)
	require.Empty(t, java.do(t, "trytake", "1", "0"))
	taking := java.starts("take", "1")
	queued(t, path+"/leases", 2) // Java makes the znode before there is room
	require.NoError(t, semaphore.SetSharedLimit(testkit.Context(t), client, limit, 2))
	testkit.Receive(t, taking, "Java takes one")

	setter := newJavaMember(t, "semaphore", path+"-other", limit)
	waiting := acquiring(t, own.Acquire)
	queued(t, path+"/locks", 1)
	require.Empty(t, waiting)
	setter.do(t, "count", "3")
	second := testkit.Receive(t, waiting, "ours")
	require.NotNil(t, second)
	require.NoError(t, first.Release())
	require.NoError(t, second.Release())
	java.do(t, "give")
}

func TestSemaphoreMutex(t *testing.T) {
	t.Parallel()
	path := testkit.Path(t)
	own, err := semaphore.NewMutex(connect(t, options{}), path)
	require.NoError(t, err)
	java := newJavaMember(t, "semaphoremutex", path)
	lease := acquired(t, own.Acquire)
	require.Equal(t, []string{"false"}, java.do(t, "tryacquire", "0"))
	taking := java.starts("acquire")
	queued(t, path+"/leases", 2)
	require.NoError(t, lease.Release())
	testkit.Receive(t, taking, "Java")
	_, err = own.TryAcquire(testkit.Context(t))
	require.ErrorIs(t, err, recipes.ErrNotAcquired)
	waiting := acquiring(t, own.Acquire)
	queued(t, path+"/locks", 1)
	java.do(t, "release")
	lease = testkit.Receive(t, waiting, "ours")
	require.NotNil(t, lease)
	require.NoError(t, lease.Release())
	require.Empty(t, queue(t, path+"/leases"))
}
