package recipes_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
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

// The budget of a client is none of another one's, and a deletion that the server confirms gives the next one all of it.
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

// Work that does not return: Shutdown returns with its context, and names the work. The znode stays, and the session with it, until
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
		require.ErrorContains(b, err, "recipes: shutdown: step-down: the leader's function is still running (selector /services/billing)")
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

// A context that is over bounds the wait to nothing. The end goes on, and a later call waits for it.
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

// Inside a term, Shutdown only asks: it would wait for its caller otherwise.
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

// adoptClient returns a client of a connection that it does not own.
func adoptClient(b *bubble.Bubble, opts ...recipes.Option) (*recipes.Client, *zk.Conn) {
	b.Helper()
	conn, events, err := zk.Connect([]string{b.Srv.Addr()}, testclient.SessionTimeout, zk.WithDialer(b.Srv.Dialer()), zk.WithLogger(testkit.Quiet{}))
	require.NoError(b, err)
	b.Cleanup(conn.Close)
	client, err := recipes.NewClient(conn, events, append([]recipes.Option{recipes.WithSessionTimeout(testclient.SessionTimeout)}, opts...)...)
	require.NoError(b, err)
	return client, conn
}

// An outage that outlasts Close of an adopted client, whose session lives on: Close returns an error and writes a record, and the deletion
// goes on as long as the connection does.
func TestCloseOfAnAdoptedClientInAnOutage(t *testing.T) {
	for name, end := range map[string]func(*recipes.Client) error{
		"close":    (*recipes.Client).Close,
		"shutdown": func(c *recipes.Client) error { return c.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				log := &testkit.Log{}
				client, conn := adoptClient(b, recipes.WithLogger(log.Logger(slog.LevelWarn)))
				lease := acquire(b, client, "/locks/a")
				b.Srv.SetSessionTimeouts(time.Minute, time.Minute)
				over := b.Outage()
				log.Take()
				start := time.Now()
				err := end(client)
				require.Equal(b, operationTimeout, time.Since(start))
				require.ErrorIs(b, err, recipes.ErrNodeNotDeleted)
				require.ErrorContains(b, err, lease.Path())
				bubble.Pass(0)
				require.Contains(b, strings.Join(log.Take(), "\n"), "closed with znodes left: their deletion goes on")
				require.Equal(b, err, end(client))

				bubble.Pass(time.Second)
				over()
				bubble.Pass(5 * time.Second)
				require.Equal(b, zk.StateHasSession, conn.State(), "the connection is the user's")
				require.Empty(b, b.Srv.Children("/locks/a"), "the deletion went on")
				require.NoError(b, end(client))
			})
		})
	}
}

// A create whose answer was lost may have made a znode, which Close of an adopted client must not forget either.
func TestCloseOfAnAdoptedClientAfterALostCreate(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client, _ := adoptClient(b)
		b.Release(acquire(b, client, "/locks/a"))
		b.Srv.SetSessionTimeouts(time.Minute, time.Minute)
		b.Srv.DropAnswer(zktest.OpCreate, 1)
		m, err := mutex.New(client, "/locks/a")
		require.NoError(b, err)
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		_, err = m.Acquire(ctx)
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.Len(b, b.Srv.Children("/locks/a"), 1)
		over, start := b.Outage(), time.Now()
		err = client.Close()
		require.Equal(b, operationTimeout, time.Since(start))
		require.ErrorIs(b, err, recipes.ErrNodeNotDeleted)
		require.ErrorContains(b, err, "/locks/a/_c_")
		over()
		bubble.Pass(10 * time.Second)
		require.Empty(b, b.Srv.Children("/locks/a"))
		require.NoError(b, client.Close())
	})
}

// Without a server, the user closes the adopted connection: then the deletions end, and no goroutine is left.
func TestEndOfAnAdoptedConnectionEndsTheDeletions(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client, conn := adoptClient(b)
		acquire(b, client, "/locks/a")
		b.Outage()
		require.ErrorIs(b, client.Close(), recipes.ErrNodeNotDeleted)
		conn.Close()
		synctest.Wait()
		require.NoError(b, client.Close())
	})
}

// A user closes the connection before the client: Close has nothing to wait for.
func TestCloseAfterTheEndOfAnAdoptedConnection(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client, conn := adoptClient(b)
		lease := acquire(b, client, "/locks/a")
		conn.Close()
		require.Error(b, b.Cause(lease))
		start := time.Now()
		require.NoError(b, client.Close())
		require.Equal(b, start, time.Now())
		require.Empty(b, b.Srv.Children("/locks/a"))
	})
}
