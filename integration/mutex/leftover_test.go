package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// 2,000 attempts that time out behind a held lock leave one watch, on the holder's znode, and no goroutine. The
// engine removes no watch, so a redundant watch would stay for the life of the holder.
func TestTimedOutAttemptsLeaveNothing(t *testing.T) {
	path := testkit.Path(t)
	holder := acquire(t, newMutex(t, direct(t), path))
	client := direct(t)
	m := newMutex(t, client, path)
	const batches, each = 20, 100
	for range batches {
		errs := make(chan error, each)
		var attempts sync.WaitGroup
		for range each {
			attempts.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				if _, err := m.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
					errs <- fmt.Errorf("acquire behind a holder: %w", err)
				}
			})
		}
		attempts.Wait()
		close(errs)
		require.NoError(t, <-errs)
	}
	require.Eventually(t, func() bool { return len(children(t, path)) == 1 }, undone, 5*time.Millisecond, "ghosts")
	testkit.Eventually(t, func() bool { return libraryGoroutines() < 20 }, "goroutines of two clients")
	require.Empty(t, clientWatches(client.Conn()), "zk.Conn has none of our watches")
	require.Equal(t, map[string]int{holder.Path(): 2}, serverWatches(t, path), "ours, and the holder's own")
	require.NoError(t, holder.Release())
}

// A client that has a lock to itself leaves no watch, for any number of acquisitions.
func TestBriefHoldsLeaveNoWatch(t *testing.T) {
	path := testkit.Path(t)
	m := newMutex(t, direct(t), path)
	for range 20 {
		require.NoError(t, acquire(t, m).Release())
	}
	testkit.Eventually(t, func() bool { return len(serverWatches(t, path)) == 0 }, "no watch")
}

// libraryGoroutines counts the goroutines with a function of the library on their stacks, because the test harness
// has a varying number, too.
func libraryGoroutines() int {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	count := 0
	for goroutine := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(goroutine, "/internal/zkutil/") {
			count++
		}
	}
	return count
}

// serverWatches counts the sessions that watch a path or what is below it, by path.
func serverWatches(t *testing.T, path string) map[string]int {
	t.Helper()
	all, err := zkadmin.Watches(testkit.Context(t), ensemble.Shared(t).Server(0))
	require.NoError(t, err)
	watches := map[string]int{}
	for _, w := range all {
		if strings.HasPrefix(w.Path, path) {
			watches[w.Path]++
		}
	}
	return watches
}

// clientWatches counts the channels that a zk.Conn keeps, by path. No public method reports them.
func clientWatches(conn *zk.Conn) map[string]int {
	fields := reflect.ValueOf(conn).Elem()
	lock := (*sync.Mutex)(unsafe.Pointer(fields.FieldByName("watchersLock").UnsafeAddr()))
	lock.Lock()
	defer lock.Unlock()
	watches := map[string]int{}
	for each := fields.FieldByName("watchers").MapRange(); each.Next(); {
		watches[each.Key().Field(0).String()] += each.Value().Len()
	}
	return watches
}
