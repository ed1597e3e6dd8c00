package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

const (
	exclusionProcesses  = 3
	exclusionGoroutines = 100
	exclusionRounds     = 3 // acquisitions of each goroutine
	exclusionClients    = 4 // of each process
)

// Three processes with 100 goroutines each increase a number in a file: read, give
// way, write. Nothing but the lock guards it.
func TestExclusionAcrossProcesses(t *testing.T) {
	path, dir := testkit.Path(t), t.TempDir()
	counter := filepath.Join(dir, "counter")
	require.NoError(t, os.WriteFile(counter, []byte("0"), 0o600))
	began := time.Now()
	var waits []func()
	for range exclusionProcesses {
		waits = append(waits, startWorker(t, "exclusion", ensemble.Shared(t).Server(0), path, dir))
	}
	for _, wait := range waits {
		wait()
	}
	const acquisitions = exclusionProcesses * exclusionGoroutines * exclusionRounds
	t.Logf("%d acquisitions in %v", acquisitions, time.Since(began).Round(time.Millisecond))

	total, err := os.ReadFile(counter)
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(acquisitions), string(total), "each acquisition has counted once")
	log, err := os.ReadFile(filepath.Join(dir, "tokens"))
	require.NoError(t, err)
	tokens := strings.Fields(string(log))
	require.Len(t, tokens, acquisitions)
	last := int64(0)
	for _, text := range tokens {
		token, err := strconv.ParseInt(text, 10, 64)
		require.NoError(t, err)
		require.Greater(t, token, last, "tokens grow with every holder, over all processes")
		last = token
	}
	require.Empty(t, children(t, path))
}

// workExclusively is one of the processes.
func workExclusively(ctx context.Context, args []string) error {
	server, path, dir := args[0], args[1], args[2]
	var values []*mutex.InterProcessMutex
	for range exclusionClients {
		client, err := recipes.Connect(ctx, []string{server}, recipes.WithSessionTimeout(patience))
		if err != nil {
			return err
		}
		defer func() { _ = client.Close() }()
		m, err := mutex.New(client, path)
		if err != nil {
			return err
		}
		values = append(values, m)
	}
	section := criticalSection{dir: dir}
	failures := make([]error, exclusionGoroutines)
	var goroutines sync.WaitGroup
	for i := range exclusionGoroutines {
		goroutines.Go(func() {
			for range exclusionRounds {
				lease, err := values[i%len(values)].Acquire(ctx)
				if err != nil {
					failures[i] = err
					return
				}
				failures[i] = errors.Join(section.run(lease.FencingToken()), lease.Release())
				if failures[i] != nil {
					return
				}
			}
		})
	}
	goroutines.Wait()
	return errors.Join(failures...)
}

// criticalSection notices two holders: in this process by a number, over all processes by a file that only one can
// create, and by the sum at the end.
type criticalSection struct {
	dir    string
	inside atomic.Int32
}

func (c *criticalSection) run(token int64) error {
	if n := c.inside.Add(1); n != 1 {
		return fmt.Errorf("%d holders in one process", n)
	}
	defer c.inside.Add(-1)
	mark := filepath.Join(c.dir, "held")
	held, err := os.OpenFile(mark, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("another holds the lock: %w", err)
	}
	counter := filepath.Join(c.dir, "counter")
	text, err := os.ReadFile(counter)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	if err := appendLine(filepath.Join(c.dir, "tokens"), token); err != nil {
		return err
	}
	if err := os.WriteFile(counter, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
		return err
	}
	return errors.Join(held.Close(), os.Remove(mark))
}

func appendLine(file string, number int64) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, number)
	return errors.Join(err, f.Close())
}

// A goroutine that was not given the lease's context is a contender like any other,
// with the same mutex value and with the context of the Acquire too.
func TestSameValueExcludes(t *testing.T) {
	type key struct{}
	path := testkit.Path(t)
	m := newMutex(t, direct(t), path)
	ctx := context.WithValue(testkit.Context(t), key{}, "of the caller")
	first, err := m.Acquire(ctx)
	require.NoError(t, err)

	contexts := []context.Context{ctx, testkit.Context(t), context.WithoutCancel(ctx)}
	var waiters []<-chan result
	for i, ctx := range contexts {
		waiters = append(waiters, waiting(t, ctx, m, path, i+2))
	}
	_, err = m.TryAcquire(ctx)
	require.ErrorIs(t, err, recipes.ErrNotAcquired)
	holder, queue := first, waiters
	for len(queue) > 0 {
		for _, waiter := range queue {
			require.Empty(t, waiter, "a waiter has got the lock beside its holder")
		}
		require.NoError(t, holder.Release())
		next, err := outcome(t, queue[0])
		require.NoError(t, err)
		require.NotEqual(t, holder.Path(), next.Path())
		require.Greater(t, next.FencingToken(), holder.FencingToken())
		holder, queue = next, queue[1:]
	}
	require.NoError(t, holder.Release())
	require.Empty(t, children(t, path))
}
