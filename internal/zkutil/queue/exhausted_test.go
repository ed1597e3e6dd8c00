package queue_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// numbered is a server on which the next contender gets a number, and a client of it.
// The lock's directory is a container, as the library makes it.
func numbered(t *testing.T, next int32, opts ...recipes.Option) (*zktest.Server, *mutex.InterProcessMutex) {
	t.Helper()
	srv := zktest.NewServer(t)
	m := locks.MutexOn(t, testclient.Connect(t, srv, opts...), locks.Path)
	require.NoError(t, bubble.Acquire(t, m.Acquire).Release())
	srv.SetSequence(locks.Path, next)
	return srv, m
}

// The last meaningful number is 2147483646. The warnings begin half way.
func TestLastSequenceNumbers(t *testing.T) {
	const warning = "sequence numbers are running out"
	for _, tc := range []struct {
		next      int32
		warned    bool
		exhausted bool
	}{
		{next: 0},
		{next: 1<<30 - 1},
		{next: 1 << 30, warned: true},
		{next: math.MaxInt32 - 1, warned: true},
		{next: math.MaxInt32, warned: true, exhausted: true},
		{next: math.MinInt32, warned: true, exhausted: true},
		{next: -1, warned: true, exhausted: true},
	} {
		t.Run(fmt.Sprint(tc.next), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				var log bytes.Buffer
				srv, m := numbered(t, tc.next, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				for _, acquire := range []locks.Attempt{m.Acquire, m.TryAcquire} {
					srv.SetSequence(locks.Path, tc.next)
					lease, err := acquire(t.Context())
					if tc.exhausted {
						require.ErrorIs(t, err, recipes.ErrSequenceExhausted)
					} else {
						require.NoError(t, err)
						require.True(t, strings.HasSuffix(lease.Path(), fmt.Sprintf("lock-%010d", tc.next)), lease.Path())
						require.NoError(t, lease.Release())
					}
					synctest.Wait()
					require.Empty(t, srv.Children(locks.Path))
				}
				require.Equal(t, tc.warned, strings.Contains(log.String(), warning), log.String())
			})
		})
	}
}

// The holder with the last usable number keeps the lock. All newcomers get the same number, and could
// sort before each other. A contender that waits is not granted out of turn either.
func TestExhaustionWhileHeld(t *testing.T) {
	for _, next := range []int32{math.MaxInt32, math.MinInt32, -100} {
		testkit.Bubble(t, func(t *testing.T) {
			srv, m := numbered(t, math.MaxInt32-2)
			holder := bubble.Acquire(t, m.Acquire)
			waiting := bubble.Start(t.Context(), m.Acquire)
			synctest.Wait()
			srv.SetSequence(locks.Path, next)
			for range 10 {
				_, err := m.Acquire(t.Context())
				require.ErrorIs(t, err, recipes.ErrSequenceExhausted)
				_, err = m.TryAcquire(t.Context())
				require.ErrorIs(t, err, recipes.ErrSequenceExhausted)
			}
			synctest.Wait()
			require.Len(t, srv.Children(locks.Path), 2)
			require.Empty(t, waiting)
			require.NoError(t, holder.Context().Err())
			require.NoError(t, holder.Release())
			last := <-waiting
			require.NoError(t, last.Err)
			require.Greater(t, last.Lease.FencingToken(), holder.FencingToken())
			require.NoError(t, last.Lease.Release())
		})
	}
}

// A foreign contender with a number that means nothing is in the way like any other,
// and never makes two holders.
func TestForeignContenderPastTheEnd(t *testing.T) {
	for _, name := range []string{"x-lock--2147483648", "x-lock--000000001", "x-lock-2147483647"} {
		testkit.Bubble(t, func(t *testing.T) {
			srv, m := numbered(t, math.MaxInt32-3)
			holder := bubble.Acquire(t, m.Acquire)
			srv.Put(locks.Path+"/"+name, nil)
			waiting := bubble.Start(t.Context(), m.Acquire)
			bubble.Pass(time.Minute)
			require.NoError(t, holder.Context().Err())
			require.NoError(t, holder.Release())
			synctest.Wait()
			if strings.Contains(name, "--") { // sorts first
				require.Empty(t, waiting)
				srv.Delete(locks.Path + "/" + name)
			}
			next := <-waiting
			require.NoError(t, next.Err)
			require.NoError(t, next.Lease.Release())
		})
	}
}

// As the docs promise, the numbers restart when no client uses the lock and the server removes its directory. Tokens
// keep growing.
func TestNumbersStartAgain(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, m := numbered(t, math.MaxInt32-1)
		last := bubble.Acquire(t, m.Acquire)
		require.NoError(t, last.Release())
		_, err := m.Acquire(t.Context())
		require.ErrorIs(t, err, recipes.ErrSequenceExhausted)
		bubble.Pass(time.Minute)
		srv.Reap()
		lease := bubble.Acquire(t, m.Acquire)
		require.True(t, strings.HasSuffix(lease.Path(), "lock-0000000000"), lease.Path())
		require.Greater(t, lease.FencingToken(), last.FencingToken())
		require.NoError(t, lease.Release())
	})
}
