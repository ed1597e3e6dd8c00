package mutex_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// With an ended context nothing is sent.
func TestCancelBeforeAcquire(t *testing.T) {
	client, proxy := proxied(t)
	path := testkit.Path(t)
	m := newMutex(t, client, path)
	proxy.ResetCounts()
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(errOfTest)
	_, err := m.Acquire(canceled)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errOfTest)
	expired, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	_, err = m.Acquire(expired)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Empty(t, requests(proxy))
	require.Nil(t, children(t, path))
}

// A waiter whose context ends leaves the queue from any place, and those behind keep theirs.
func TestCancelWhileWaiting(t *testing.T) {
	path := testkit.Path(t)
	m := newMutex(t, direct(t), path)
	holder := acquire(t, m)
	ctx, cancel := context.WithCancelCause(t.Context())
	leaves := waiting(t, ctx, m, path, 2)
	stays := waiting(t, testkit.Context(t), m, path, 3)
	bounded, stop := context.WithTimeout(t.Context(), 3*time.Second) // begins before the znode is there
	defer stop()
	expires := waiting(t, bounded, newMutex(t, direct(t), path), path, 4)

	cancel(errOfTest)
	canceled := time.Now()
	_, err := outcome(t, leaves)
	require.Less(t, time.Since(canceled), atOnce)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errOfTest)
	_, err = outcome(t, expires)
	deadline, _ := bounded.Deadline()
	require.Less(t, time.Since(deadline), atOnce)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Eventually(t, func() bool { return len(children(t, path)) == 2 }, undone, 5*time.Millisecond)
	require.Empty(t, stays, "it is not his turn yet")
	require.NoError(t, holder.Release())
	lease, err := outcome(t, stays)
	require.NoError(t, err)
	require.NoError(t, lease.Release())
	require.Empty(t, children(t, path))
}

// The end of the context races with the grant. The result is either a lease or an error, never both or neither, and
// no znode stays.
func TestCancelRacesWithTheGrant(t *testing.T) {
	path := testkit.Path(t)
	holders, waiters := newMutex(t, direct(t), path), newMutex(t, direct(t), path)
	granted, refused := 0, 0
	// Rounds go on, with longer waits, until a slow machine has shown both results.
	for i := 0; i < 200 || i < 2000 && (granted == 0 || refused == 0); i++ {
		holder := acquire(t, holders)
		ctx, cancel := context.WithCancel(t.Context())
		done := waiting(t, ctx, waiters, path, 2)
		_, _, gone, err := observer(t).ExistsW(holder.Path())
		require.NoError(t, err)
		released := make(chan error, 1)
		go func() { released <- holder.Release() }() // joined below
		<-gone                                       // the waiter is notified at the same moment
		for spin := time.Now().Add(time.Duration(i%10*(1+i/200)) * 50 * time.Microsecond); time.Now().Before(spin); {
			runtime.Gosched() // a busy wait of up to half a millisecond, at first
		}
		cancel()
		lease, err := outcome(t, done)
		require.NoError(t, <-released)
		if err == nil {
			granted++
			require.NoError(t, lease.Context().Err(), "the lease outlives the context of Acquire")
			require.Equal(t, []string{lease.Path()[len(path)+1:]}, children(t, path))
			require.NoError(t, lease.Release())
		} else {
			refused++
			require.Nil(t, lease)
			require.ErrorIs(t, err, context.Canceled)
		}
		require.Eventually(t, func() bool { return len(children(t, path)) == 0 }, undone, time.Millisecond, "a ghost")
	}
	t.Logf("%d granted, %d cancelled", granted, refused)
	require.Positive(t, granted)
	require.Positive(t, refused)
}

// Attempts whose contexts end at random moments, on a line that is cut again and
// again, leave nothing.
func TestCancelStorm(t *testing.T) {
	client, proxy := proxied(t, recipes.WithSessionTimeout(longSession))
	path := testkit.Path(t)
	m := newMutex(t, client, path)
	stopCuts := make(chan struct{})
	var cuts sync.WaitGroup
	cuts.Go(func() {
		tick := time.NewTicker(40 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				proxy.Cut()
			case <-stopCuts:
				return
			}
		}
	})
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() { errs <- stormy(t, m, 150) }() // joined through errs
	}
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
	close(stopCuts)
	cuts.Wait()
	testkit.Eventually(t, func() bool { return client.State() == recipes.Connected }, "the connection")
	require.Eventually(t, func() bool { return len(children(t, path)) == 0 }, 2*undone, 5*time.Millisecond, "ghosts")
	require.NoError(t, acquire(t, m).Release())
}

// stormy makes attempts that end after up to 60 ms.
func stormy(t *testing.T, m *mutex.InterProcessMutex, attempts int) error {
	t.Helper()
	for range attempts {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(60*time.Millisecond))
		lease, err := m.Acquire(ctx)
		switch {
		case err == nil:
			err = lease.Release()
		case errors.Is(err, context.DeadlineExceeded):
			err = nil
		}
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
