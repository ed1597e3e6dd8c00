package cohort_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/cohort"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// newCohort returns a cohort on /m of a new session.
func newCohort(t *testing.T, srv *fixture.Ensemble, bounds cohort.Bounds) *cohort.Cohort {
	t.Helper()
	c, err := cohort.New(fixture.MutexOn(fixture.Connect(t, srv.Config(time.Minute)), "/m").Queue, bounds, 0)
	require.NoError(t, err)
	return c
}

// acquireLater starts an acquisition, and returns when the caller waits inside.
func acquireLater(ctx context.Context, c *cohort.Cohort) <-chan bubble.Outcome[*session.Entry] {
	got := bubble.Start(ctx, func(ctx context.Context) (*session.Entry, error) { return c.Acquire(ctx, true, nil) })
	synctest.Wait()
	return got
}

func TestPassesInOrderOnOneZnode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		c := newCohort(t, srv, cohort.Bounds{MaxPasses: 1, MaxTenure: time.Second})
		first, err := c.Acquire(t.Context(), true, nil)
		require.NoError(t, err)
		var turns []<-chan bubble.Outcome[*session.Entry]
		for range 5 {
			turns = append(turns, acquireLater(t.Context(), c))
		}
		path, waiting := c.Inside()
		require.Equal(t, first.Path(), path)
		require.Equal(t, 5, waiting)
		fixture.Settle()
		before, entry := len(srv.Log.Requests()), first
		for i, turn := range turns {
			require.NoError(t, entry.Leave())
			got := <-turn
			require.NoError(t, got.Err)
			require.Equal(t, first.Path(), got.Lease.Path())
			for _, later := range turns[i+1:] {
				require.Empty(t, later)
			}
			entry = got.Lease
		}
		require.Len(t, srv.Log.Requests(), before, "a pass sends nothing")
		require.NoError(t, entry.Leave())
		require.Empty(t, srv.Children("/m"))
	})
}

func TestTenureEndsAfterMaxPassesWhileOthersWait(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const passes = 3
		srv := fixture.NewEnsemble(t)
		c := newCohort(t, srv, cohort.Bounds{MaxPasses: passes, MaxTenure: time.Hour})
		entry, err := c.Acquire(t.Context(), true, nil)
		require.NoError(t, err)
		var turns []<-chan bubble.Outcome[*session.Entry]
		for range passes + 1 {
			turns = append(turns, acquireLater(t.Context(), c))
		}
		other := bubble.Start(t.Context(), fixture.MutexOn(fixture.Connect(t, srv.Config(time.Minute)), "/m").Acquire)
		fixture.Settle()
		for _, turn := range turns[:passes] {
			require.NoError(t, entry.Leave())
			entry = (<-turn).Lease
		}
		require.Empty(t, other)
		require.NoError(t, entry.Leave())
		got := <-other
		require.NoError(t, got.Err)
		require.Empty(t, turns[passes], "the last caller queues behind the other contender")
		require.NoError(t, got.Lease.Leave())
		last := <-turns[passes]
		require.NoError(t, last.Err)
		require.NoError(t, last.Lease.Leave())
	})
}

func TestLossEndsTheTenureAndCallersInsideQueueAgain(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		c := newCohort(t, srv, cohort.Bounds{MaxPasses: 100, MaxTenure: time.Hour})
		first, err := c.Acquire(t.Context(), true, nil)
		require.NoError(t, err)
		turn := acquireLater(t.Context(), c)
		fixture.Settle()
		srv.Delete(first.Path())
		got := <-turn
		require.NoError(t, got.Err)
		require.ErrorIs(t, context.Cause(first.Context()), zkutil.ErrNodeDeleted)
		require.NotEqual(t, first.Path(), got.Lease.Path())
		require.Greater(t, got.Lease.Token(), first.Token())
		require.NoError(t, got.Lease.Leave())
	})
}

func TestCancelledCallerLeavesTheCohort(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		c := newCohort(t, srv, cohort.Bounds{MaxPasses: 100, MaxTenure: time.Hour})
		first, err := c.Acquire(t.Context(), true, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancelled, next := acquireLater(ctx, c), acquireLater(t.Context(), c)
		cancel()
		require.ErrorIs(t, (<-cancelled).Err, context.Canceled)
		_, err = c.Acquire(t.Context(), false, nil)
		require.ErrorIs(t, err, zkutil.ErrNotAcquired, "a TryAcquire beside the holder")
		require.NoError(t, first.Leave())
		got := <-next
		require.NoError(t, got.Err)
		require.NoError(t, got.Lease.Leave())
	})
}

func TestCohortsOfAQueueShareTheirBounds(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := fixture.Connect(t, fixture.NewEnsemble(t).Config(time.Minute))
		bounds := cohort.Bounds{MaxPasses: 1, MaxTenure: time.Second}
		for range 2 {
			_, err := cohort.New(fixture.MutexOn(s, "/m").Queue, bounds, 0)
			require.NoError(t, err)
		}
		bounds.Linger = time.Second
		_, err := cohort.New(fixture.MutexOn(s, "/m").Queue, bounds, 0)
		require.ErrorContains(t, err, "other bounds")
		_, err = cohort.New(fixture.MutexOn(s, "/other").Queue, bounds, 0)
		require.NoError(t, err)
	})
}
