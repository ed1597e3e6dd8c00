package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

const (
	costsPath = "/costs"
	// slowCommit is what each commit takes here, and costsTimeout a session timeout by which no heartbeat is due before an operation ends.
	slowCommit   = 10 * time.Millisecond
	costsTimeout = 10 * time.Minute
)

// cost is what one operation costs. Requests are those of the operation, without heartbeats. A caller waits for commits one after the other,
// which is what the operation takes on a slow disk.
type cost struct{ commits, requests, waitedFor int }

// costly returns what one client does once: acquire and release.
type costly func(b *bubble.Bubble, client *recipes.Client) func(context.Context) error

// pairOf acquires and releases by a function with the shape of an Acquire.
func pairOf[L bubble.Holder](acquire func(context.Context) (L, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		lease, err := acquire(ctx)
		if err != nil {
			return err
		}
		return lease.Release()
	}
}

func multilockOf(n int, opts ...mutex.Option) costly {
	return func(b *bubble.Bubble, client *recipes.Client) func(context.Context) error {
		var paths []string
		for i := range n {
			paths = append(paths, fmt.Sprintf("%s/item-%d", costsPath, i))
		}
		lock, err := multilock.NewMutexes(client, paths, opts...)
		require.NoError(b, err)
		return pairOf(lock.Acquire)
	}
}

func permits(n int) costly {
	return func(b *bubble.Bubble, client *recipes.Client) func(context.Context) error {
		s, err := semaphore.New(client, costsPath, 10)
		require.NoError(b, err)
		return func(ctx context.Context) error {
			leases, err := s.AcquireN(ctx, n)
			for _, lease := range leases {
				err = lease.Release()
			}
			return err
		}
	}
}

func run(b *bubble.Bubble, client *recipes.Client) func(context.Context) error {
	o, err := once.New(client, costsPath)
	require.NoError(b, err)
	occurrence := 0
	return func(ctx context.Context) error {
		occurrence++
		return o.Do(ctx, fmt.Sprint(occurrence), func(context.Context, *recipes.Lease) error { return nil })
	}
}

// What a free lock costs: a change that makes it cost more fails here.
func TestCostsOfFreeLocks(t *testing.T) {
	for name, c := range map[string]struct {
		of   costly
		want cost
	}{
		"mutex": {func(b *bubble.Bubble, client *recipes.Client) func(context.Context) error {
			return pairOf(busyMutex(b, client, costsPath).Acquire)
		}, cost{2, 3, 2}},
		"mutex, release in the background": {func(b *bubble.Bubble, client *recipes.Client) func(context.Context) error {
			return pairOf(busyMutex(b, client, costsPath, mutex.WithBackgroundRelease()).Acquire)
		}, cost{2, 3, 1}},
		"read lock": {func(b *bubble.Bubble, client *recipes.Client) func(context.Context) error {
			pair, err := rwlock.New(client, costsPath)
			require.NoError(b, err)
			return pairOf(pair.ReadLock().Acquire)
		}, cost{2, 3, 2}},
		"write lock": {func(b *bubble.Bubble, client *recipes.Client) func(context.Context) error {
			pair, err := rwlock.New(client, costsPath)
			require.NoError(b, err)
			return pairOf(pair.WriteLock().Acquire)
		}, cost{2, 3, 2}},
		"multilock of 2":  {multilockOf(2), cost{2, 4, 2}},
		"multilock of 10": {multilockOf(10), cost{2, 12, 2}},
		"multilock of 10, release in the background": {multilockOf(10, mutex.WithBackgroundRelease()), cost{2, 12, 1}},
		"semaphore":   {permits(1), cost{3, 6, 3}},
		"AcquireN(5)": {permits(5), cost{7, 10, 7}},
		"semaphore mutex": {func(b *bubble.Bubble, client *recipes.Client) func(context.Context) error {
			lock, err := semaphore.NewMutex(client, costsPath)
			require.NoError(b, err)
			return pairOf(lock.Acquire)
		}, cost{3, 6, 3}},
		"once": {run, cost{3, 6, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				client := b.Client(recipes.WithSessionTimeout(costsTimeout))
				requireCosts(b, c.want, false, c.of(b, client))
			})
		})
	}
}

// requireCosts requires functions that are called at the same time to cost what is wanted. Which of them looks at the queue before which
// decides about some requests, so that want has the most of them. With isMost, that is so for everything.
func requireCosts(b *bubble.Bubble, want cost, isMost bool, dos ...func(context.Context) error) {
	b.Helper()
	got := costsOf(b, dos...)
	b.Logf("%+v", got)
	require.LessOrEqual(b, got.requests, want.requests)
	if isMost {
		require.LessOrEqual(b, got.commits, want.commits)
		require.LessOrEqual(b, got.waitedFor, want.waitedFor)
		return
	}
	got.requests = want.requests
	require.Equal(b, want, got)
}

// costsOf calls functions at the same time, three times: for the directories, for the requests, and for the commits that the callers wait
// for.
func costsOf(b *bubble.Bubble, dos ...func(context.Context) error) cost {
	call := func() time.Duration {
		startedAt := time.Now()
		errs := make([]error, len(dos))
		var all sync.WaitGroup
		for i, do := range dos {
			all.Go(func() { errs[i] = do(b.Context()) })
		}
		all.Wait()
		took := time.Since(startedAt)
		require.NoError(b, errors.Join(errs...))
		bubble.Pass(time.Second) // whatever goes on behind the call
		return took
	}
	call()
	log := b.Srv.Observe()
	call()
	log.Stop()
	b.Srv.SlowCommits(slowCommit)
	return cost{commitsIn(log), log.Count(), int(call() / slowCommit)}
}

// commitsIn counts the requests that change something.
func commitsIn(log *zktest.Log) int {
	return log.Count(zktest.OpCreate, zktest.OpCreate2, zktest.OpCreateContainer, zktest.OpCreateTTL, zktest.OpDelete, zktest.OpSetData,
		zktest.OpMulti, zktest.OpSync)
}

// Each of n clients has the lock once, one after the other. The first contender of a mutex sends three requests, and each later one five at
// most. The contender that holds the first part of a multilock finds the other parts free. A semaphore has two queues, and nine requests for
// each contender leave room for the order in which they look.
func TestCostsOfContendedLocks(t *testing.T) {
	for name, c := range map[string]struct {
		of   costly
		want map[int]cost // of all clients together

		isMost bool // see requireCosts
	}{
		"mutex": {func(b *bubble.Bubble, client *recipes.Client) func(context.Context) error {
			return pairOf(busyMutex(b, client, costsPath).Acquire)
		}, map[int]cost{2: {4, 8, 3}, 3: {6, 13, 4}, 64: {128, 318, 65}}, false},
		"semaphore mutex": {func(b *bubble.Bubble, client *recipes.Client) func(context.Context) error {
			lock, err := semaphore.NewMutex(client, costsPath)
			require.NoError(b, err)
			return pairOf(lock.Acquire)
		}, map[int]cost{2: {6, 18, 5}, 3: {9, 27, 7}, 64: {192, 576, 129}}, false},
		"write lock": {func(b *bubble.Bubble, client *recipes.Client) func(context.Context) error {
			pair, err := rwlock.New(client, costsPath)
			require.NoError(b, err)
			return pairOf(pair.WriteLock().Acquire)
		}, map[int]cost{2: {4, 8, 3}, 3: {6, 13, 4}, 64: {128, 318, 65}}, false},
		"multilock of 5": {multilockOf(5), map[int]cost{2: {8, 40, 8}, 3: {15, 60, 12}, 64: {320, 1300, 200}}, true},
	} {
		for n, want := range c.want {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				bubble.Run(t, func(b *bubble.Bubble) {
					var dos []func(context.Context) error
					for range n {
						dos = append(dos, c.of(b, b.Client(recipes.WithSessionTimeout(costsTimeout))))
					}
					requireCosts(b, want, c.isMost, dos...)
				})
			})
		}
	}
}

// The directories of ten new paths are created side by side, whether they have one parent or a parent each. A caller waits for three
// transactions, of which the first is refused and the last is the release, for the ancestors of the first path, and for each level of the others.
func TestCostsOfMissingDirectories(t *testing.T) {
	for name, c := range map[string]struct {
		format string
		want   cost
	}{
		"one parent":    {costsPath + "/%d", cost{15, 35, 7}},
		"a parent each": {costsPath + "/%d/lock", cost{35, 55, 13}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				var paths []string
				for i := range 10 {
					paths = append(paths, fmt.Sprintf(c.format, i))
				}
				lock, err := multilock.NewMutexes(b.Client(recipes.WithSessionTimeout(costsTimeout)), paths)
				require.NoError(b, err)
				b.Srv.SlowCommits(slowCommit)
				log, startedAt := b.Srv.Observe(), time.Now()
				require.NoError(b, pairOf(lock.Acquire)(b.Context()))
				waitedFor := int(time.Since(startedAt) / slowCommit)
				log.Stop()
				require.Equal(b, c.want, cost{commitsIn(log), log.Count(), waitedFor})
			})
		})
	}
}

// What Shutdown costs a client with 20 locks or candidates. The end of the session deletes all that is held. Before that, the znode of work is
// deleted as soon as the work returns, so that its successor does not wait for other work, and a transaction deletes what is held without work.
func TestCostsOfShutdown(t *testing.T) {
	const winding = 100 * slowCommit
	acquire := func(b *bubble.Bubble, client *recipes.Client, path string) {
		_, err := busyMutex(b, client, path).Acquire(b.Context())
		require.NoError(b, err)
	}
	do := func(b *bubble.Bubble, client *recipes.Client, path string) {
		m := busyMutex(b, client, path)
		go func() { // ends with the client
			_ = m.Do(b.Context(), func(ctx context.Context, _ *recipes.Lease) error {
				<-ctx.Done()
				bubble.Pause(winding)
				return nil
			})
		}()
	}
	lead := func(b *bubble.Bubble, client *recipes.Client, path string) {
		candidate, err := selector.New(client, path, func(ctx context.Context, _ *recipes.Lease) error {
			<-ctx.Done()
			bubble.Pause(winding)
			return nil
		})
		require.NoError(b, err)
		require.NoError(b, candidate.Start())
	}
	type take = func(b *bubble.Bubble, client *recipes.Client, path string)
	for name, c := range map[string]struct {
		first, others take
		want          cost
	}{
		"leases":                   {acquire, acquire, cost{1, 1, 1}},
		"leases beside a function": {do, acquire, cost{3, 3, 102}},
		"functions":                {do, do, cost{21, 21, 102}},
		"leaders":                  {lead, lead, cost{21, 21, 102}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				client := b.Client(recipes.WithSessionTimeout(costsTimeout))
				c.first(b, client, costsPath+"/first")
				for i := range 19 {
					c.others(b, client, fmt.Sprintf("%s/%d", costsPath, i))
				}
				bubble.Pass(time.Second)
				b.Srv.SlowCommits(slowCommit)
				log, startedAt := b.Srv.Observe(), time.Now()
				require.NoError(b, client.Shutdown(b.Context()))
				waitedFor := int(time.Since(startedAt) / slowCommit)
				log.Stop()
				require.Equal(b, c.want, cost{commitsIn(log) + log.Count(zktest.OpClose), log.Count(), waitedFor})
			})
		})
	}
}
