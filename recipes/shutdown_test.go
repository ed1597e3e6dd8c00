package recipes_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

const operationTimeout = 10 * time.Second // of the clients, by default

// fiveLatchesAndALease are latches that lead, and the lease of a mutex.
func fiveLatchesAndALease(b *bubble.Bubble, client *recipes.Client) (latches []*latch.LeaderLatch, lease *recipes.Lease) {
	b.Helper()
	for i := range 5 {
		l, err := latch.New(client, fmt.Sprintf("/services/%d", i))
		require.NoError(b, err)
		require.NoError(b, l.Start())
		_, err = l.Await(b.Context())
		require.NoError(b, err)
		latches = append(latches, l)
	}
	return latches, acquire(b, client, "/locks/a")
}

func acquire(b *bubble.Bubble, client *recipes.Client, path string) *recipes.Lease {
	b.Helper()
	m, err := mutex.New(client, path)
	require.NoError(b, err)
	return bubble.Acquire(b, m.Acquire)
}

// znodes counts those of fiveLatchesAndALease.
func znodes(b *bubble.Bubble) int {
	return count(b, []string{"/services/0", "/services/1", "/services/2", "/services/3", "/services/4", "/locks/a"})
}

// A program gives five elections and a lease back while the servers are silent. It waits once, not six times.
func TestSilentServersAreWaitedForOnce(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled(recipes.WithSessionTimeout(time.Minute))
		latches, lease := fiveLatchesAndALease(b, client)
		silence(b)
		start := time.Now()
		require.ErrorIs(b, lease.Release(), recipes.ErrNodeNotDeleted)
		require.Equal(b, operationTimeout, time.Since(start))
		for _, l := range latches {
			require.ErrorIs(b, l.Close(), recipes.ErrNodeNotDeleted)
		}
		require.Equal(b, operationTimeout, time.Since(start))
		require.Equal(b, 6, znodes(b))
		b.Srv.Heal()
		bubble.Pass(time.Minute)
		require.Zero(b, znodes(b), "the deletions go on")
		for _, l := range latches {
			require.NoError(b, l.Close())
		}

		again := acquire(b, client, "/locks/a")
		silence(b)
		start = time.Now()
		require.ErrorIs(b, again.Release(), recipes.ErrNodeNotDeleted)
		require.Equal(b, operationTimeout, time.Since(start), "an answered write ends the silence")
		b.Srv.Heal()
	})
}

// The budgets of clients are separate, and a confirmed deletion makes the whole budget available to the next one.
func TestDeletionsThatSucceedDoNotShortenTheNextWait(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled(recipes.WithSessionTimeout(time.Minute))
		first, second := acquire(b, client, "/locks/a"), acquire(b, client, "/locks/b")
		b.Srv.Freeze(b.Srv.Addrs()...)
		time.AfterFunc(9*time.Second, func() { b.Srv.Heal() })
		require.NoError(b, first.Release())
		silence(b)
		start := time.Now()
		require.ErrorIs(b, second.Release(), recipes.ErrNodeNotDeleted)
		require.Equal(b, operationTimeout, time.Since(start))
		b.Srv.Heal()
	})
}

// Shutdown without a server waits as long as the leases could be trusted, and names what it leaves behind.
func TestShutdownWithSilentServers(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		log := &testkit.Log{}
		client := b.Troubled(recipes.WithSessionTimeout(time.Minute), recipes.WithLogger(log.Logger(slog.LevelWarn)))
		fiveLatchesAndALease(b, client)
		over := b.Outage()
		start := time.Now()
		err := client.Shutdown(b.Context())
		require.Equal(b, operationTimeout, time.Since(start))
		require.ErrorIs(b, err, recipes.ErrNodeNotDeleted)
		for _, dir := range []string{"/services/0/_c_", "/services/4/_c_", "/locks/a/_c_"} {
			require.ErrorContains(b, err, dir)
		}
		require.Equal(b, err, client.Shutdown(b.Context()), "the same result again")
		require.NoError(b, client.Close(), "the session takes the znodes with it")
		require.Contains(b, strings.Join(log.Take(), "\n"), "closed with znodes left")
		over()
		require.Equal(b, 6, znodes(b))
		bubble.Pass(2 * time.Minute)
		require.Zero(b, znodes(b))
	})
}

// A short outage does not keep Close from closing the session, so that others need not wait until it expires.
func TestCloseWaitsForAConnection(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled(recipes.WithSessionTimeout(time.Minute))
		fiveLatchesAndALease(b, client)
		over, start := b.Outage(), time.Now()
		time.AfterFunc(3*time.Second, over)
		require.NoError(b, client.Shutdown(b.Context()))
		require.Less(b, time.Since(start), 6*time.Second)
		require.Zero(b, znodes(b))
		require.Empty(b, b.Srv.Sessions())
	})
}

// stubbornLeader is a selector whose function does not return before letGo is called, and a successor.
func stubbornLeader(b *bubble.Bubble, client *recipes.Client) (successor *latch.LeaderLatch, letGo func()) {
	b.Helper()
	done := make(chan struct{})
	leader, err := selector.New(client, "/services/billing", func(context.Context, *recipes.Lease) error { <-done; return nil })
	require.NoError(b, err)
	require.NoError(b, leader.Start())
	bubble.Pass(bubble.Moment)
	require.True(b, leader.HasLeadership())
	successor, err = latch.New(b.Client(), "/services/billing")
	require.NoError(b, err)
	require.NoError(b, successor.Start())
	return successor, func() { close(done) }
}

// With work that does not return, Shutdown returns with its context, and names the work. The znode and the session stay until
// the work returns.
func TestShutdownOfALeaderWhoseWorkDoesNotReturn(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		successor, letGo := stubbornLeader(b, client)
		lease := acquire(b, client, "/locks/a")
		cause := fmt.Errorf("pod %w", context.Canceled)
		ctx, cancel := context.WithTimeoutCause(b.Context(), 25*time.Second, cause)
		defer cancel()
		start := time.Now()
		err := client.Shutdown(ctx)
		require.Equal(b, 25*time.Second, time.Since(start))
		require.ErrorIs(b, err, recipes.ErrStepDownGrace)
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.ErrorIs(b, err, cause)
		require.ErrorContains(b, err, "recipes: shutdown: work is still running (selector /services/billing)")
		require.ErrorIs(b, context.Cause(lease.Context()), recipes.ErrClosed)
		require.Empty(b, b.Srv.Children("/locks/a"), "what nobody works under is deleted")

		bubble.Pass(time.Minute)
		require.Len(b, b.Srv.Children("/services/billing"), 2)
		require.False(b, successor.HasLeadership())
		letGo()
		_, err = successor.Await(b.Context())
		require.NoError(b, err)
		require.NoError(b, client.Shutdown(b.Context()))
	})
}

// After the beginning of a Shutdown nothing is acquired and no election entered.
func TestShutdownRefusesNewAcquisitions(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		_, letGo := stubbornLeader(b, client)
		ended := make(chan error)
		go func() { ended <- client.Shutdown(b.Context()) }() // joined below
		bubble.Pass(bubble.Moment)
		for name, lock := range doers(b, client) {
			require.ErrorIs(b, lock.do(b.Context(), func(context.Context) error { return nil }), recipes.ErrClosed, name)
			require.ErrorIs(b, lock.within(b.Context(), 0, func(context.Context) error { return nil }), recipes.ErrClosed, name)
		}
		l, err := latch.New(client, "/services/other")
		require.NoError(b, err)
		require.ErrorIs(b, l.Start(), recipes.ErrClosed)
		require.Empty(b, ended)
		letGo()
		require.NoError(b, <-ended)
	})
}

// A context that is over reduces the wait to nothing. The shutdown continues, and a later call waits for it.
func TestShutdownWithAContextThatIsOver(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		_, letGo := stubbornLeader(b, client)
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		start := time.Now()
		err := client.Shutdown(ctx)
		require.ErrorIs(b, err, context.Canceled)
		require.ErrorContains(b, err, "selector /services/billing")
		require.Equal(b, start, time.Now())
		letGo()
		require.NoError(b, client.Shutdown(b.Context()))
		require.NoError(b, client.Shutdown(ctx), "nothing is left to wait for")
	})
}

// Inside a term, Shutdown only requests the shutdown, because it would otherwise wait for its caller.
func TestShutdownInsideATerm(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		ended := make(chan error, 1)
		leader, err := selector.New(client, "/services/billing", func(ctx context.Context, _ *recipes.Lease) error {
			start := time.Now()
			err := client.Shutdown(context.Background())
			if time.Since(start) > 0 || context.Cause(ctx) == nil {
				err = fmt.Errorf("took %v, cause %w", time.Since(start), context.Cause(ctx))
			}
			ended <- err
			return nil
		})
		require.NoError(b, err)
		require.NoError(b, leader.Start())
		require.NoError(b, <-ended)
		require.NoError(b, client.Shutdown(b.Context()))
		require.Empty(b, b.Srv.Children("/services/billing"))
		require.Empty(b, b.Srv.Sessions())
	})
}

// Calls of Shutdown and Close at once end the client once. Each returns with its own bound.
func TestShutdownBesideClose(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		_, letGo := stubbornLeader(b, client)
		start := time.Now()
		var calls sync.WaitGroup
		for i := range 5 {
			calls.Go(func() {
				limit := time.Duration(i+1) * 5 * time.Second
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				defer cancel()
				err := client.Shutdown(ctx)
				if took := time.Since(start); err == nil || took != limit {
					b.Errorf("shutdown within %v took %v: %v", limit, took, err)
				}
			})
			calls.Go(func() {
				if err := client.Close(); err == nil || time.Since(start) != operationTimeout {
					b.Errorf("close took %v: %v", time.Since(start), err)
				}
			})
		}
		calls.Wait()
		letGo()
		ends := make(chan error, 10)
		for range cap(ends) / 2 {
			calls.Go(func() { ends <- client.Shutdown(context.Background()) })
			calls.Go(func() { ends <- client.Close() })
		}
		calls.Wait()
		for range cap(ends) {
			require.NoError(b, <-ends)
		}
		require.Len(b, b.Srv.Children("/services/billing"), 1, "the successor's")
	})
}

// The quorum is slow. Shutdown waits until the deletions and the end of the session are confirmed, unless its context ends before or
// Close is called.
func TestShutdownWithSlowCommits(t *testing.T) {
	const commit = 7 * time.Second / 2
	for name, test := range map[string]struct {
		limit, closeAt time.Duration // 0: no call of Close
		took, slack    time.Duration // the close may wait for the answer to the deletion, or be sent behind it
		err            error
	}{
		"shutdown":               {limit: time.Minute, took: 3 * commit / 2, slack: commit / 2},
		"bounded by its context": {limit: 3 * time.Second, took: 3 * time.Second, err: recipes.ErrNodeNotDeleted},
		"hurried by Close":       {limit: time.Minute, closeAt: 3 * time.Second, took: 3 * time.Second, slack: 2 * time.Second, err: recipes.ErrNodeNotDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				client := b.Troubled(recipes.WithSessionTimeout(12 * time.Second))
				acquire(b, client, "/locks/a")
				b.Srv.SlowCommits(commit)
				if test.closeAt > 0 {
					time.AfterFunc(test.closeAt, func() { _ = client.Close() }) // joined by the Close of the bubble
				}
				ctx, cancel := context.WithTimeout(b.Context(), test.limit)
				defer cancel()
				start := time.Now()
				require.ErrorIs(b, client.Shutdown(ctx), test.err)
				require.WithinDuration(b, start.Add(test.took), time.Now(), test.slack)
				if test.err == nil {
					require.Empty(b, b.Srv.Sessions())
				}
			})
		})
	}
}

// A create is in flight when the shutdown begins, and the quorum is slow. Shutdown waits for that answer too, because the session is closed
// over the same connection.
func TestShutdownDuringASlowCreate(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled(recipes.WithSessionTimeout(12 * time.Second))
		b.Release(acquire(b, client, "/locks/a"))
		const commit = 5 * time.Second
		b.Srv.SlowCommits(commit)
		m, err := mutex.New(client, "/locks/a")
		require.NoError(b, err)
		acquired := make(chan error, 1)
		go func() { // joined below
			_, err := m.Acquire(b.Context())
			acquired <- err
		}()
		bubble.Pass(time.Second)
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		require.NoError(b, client.Shutdown(ctx))
		require.LessOrEqual(b, time.Since(start), 2*commit)
		require.ErrorIs(b, <-acquired, recipes.ErrClosed)
		require.Empty(b, b.Srv.Sessions())
	})
}

// The server is silent after the request to close the session: Shutdown ends with the connection, not with its context.
func TestShutdownOfASilentServer(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled(recipes.WithSessionTimeout(30 * time.Second))
		acquire(b, client, "/locks/a")
		b.Srv.Freeze(b.Srv.Addrs()...)
		start := time.Now()
		require.ErrorIs(b, client.Shutdown(context.Background()), recipes.ErrNodeNotDeleted)
		require.Less(b, time.Since(start), 25*time.Second, "two thirds of the session timeout, and the waits of Close")
		b.Srv.Heal()
	})
}

// An error names ten of the znodes that are left, and counts the others.
func TestManyZnodesAreLeft(t *testing.T) {
	for n, more := range map[int]string{10: "", 11: " and 1 more", 13: " and 3 more"} {
		bubble.Run(t, func(b *bubble.Bubble) {
			client := b.Troubled(recipes.WithSessionTimeout(time.Minute))
			for i := range n {
				acquire(b, client, fmt.Sprintf("/locks/%02d", i))
			}
			b.Outage()
			err := client.Shutdown(b.Context())
			require.ErrorIs(b, err, recipes.ErrNodeNotDeleted)
			require.Equal(b, 10, strings.Count(err.Error(), "/locks/"))
			require.ErrorContains(b, err, "/locks/00/_c_")
			require.ErrorContains(b, err, more+" (no server has confirmed")
			require.Equal(b, more != "", strings.Contains(err.Error(), " more ("))
		})
	}
}
