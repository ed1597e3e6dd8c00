package cohort_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/cohort"
)

// newCohort returns a cohort on /m of a new session.
func newCohort(t *testing.T, srv *fixture.Ensemble, bounds cohort.Bounds) *cohort.Cohort {
	t.Helper()
	c, err := cohort.New(fixture.MutexOn(fixture.Connect(t, srv.Config(time.Minute)), "/m"), bounds, 0)
	require.NoError(t, err)
	return c
}

// acquireLater starts an acquisition, and returns when the caller waits inside.
func acquireLater(ctx context.Context, c *cohort.Cohort) <-chan fixture.Granted {
	got := make(chan fixture.Granted, 1)
	go func() { // ends with the acquisition
		entry, err := c.AcquireTraced(ctx, true, nil)
		got <- fixture.Granted{Entry: entry, Err: err}
	}()
	synctest.Wait()
	return got
}

func TestPassesInOrderOnOneZnode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		c := newCohort(t, srv, cohort.Bounds{MaxPasses: 1, MaxTenure: time.Second})
		first, err := c.AcquireTraced(t.Context(), true, nil)
		require.NoError(t, err)
		var turns []<-chan fixture.Granted
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
			require.Equal(t, first.Path(), got.Entry.Path())
			for _, later := range turns[i+1:] {
				require.Empty(t, later)
			}
			entry = got.Entry
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
		entry, err := c.AcquireTraced(t.Context(), true, nil)
		require.NoError(t, err)
		var turns []<-chan fixture.Granted
		for range passes + 1 {
			turns = append(turns, acquireLater(t.Context(), c))
		}
		other := fixture.AcquireLater(t.Context(), fixture.MutexOn(fixture.Connect(t, srv.Config(time.Minute)), "/m"))
		fixture.Settle()
		for _, turn := range turns[:passes] {
			require.NoError(t, entry.Leave())
			entry = (<-turn).Entry
		}
		require.Empty(t, other)
		require.NoError(t, entry.Leave())
		got := <-other
		require.NoError(t, got.Err)
		require.Empty(t, turns[passes], "the last caller queues behind the other contender")
		require.NoError(t, got.Entry.Leave())
		last := <-turns[passes]
		require.NoError(t, last.Err)
		require.NoError(t, last.Entry.Leave())
	})
}

func TestLossEndsTheTenureAndCallersInsideQueueAgain(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		c := newCohort(t, srv, cohort.Bounds{MaxPasses: 100, MaxTenure: time.Hour})
		first, err := c.AcquireTraced(t.Context(), true, nil)
		require.NoError(t, err)
		turn := acquireLater(t.Context(), c)
		fixture.Settle()
		srv.Delete(first.Path())
		got := <-turn
		require.NoError(t, got.Err)
		require.ErrorIs(t, context.Cause(first.Context()), zkutil.ErrNodeDeleted)
		require.NotEqual(t, first.Path(), got.Entry.Path())
		require.Greater(t, got.Entry.Token(), first.Token())
		require.NoError(t, got.Entry.Leave())
	})
}

func TestCancelledCallerLeavesTheCohort(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		c := newCohort(t, srv, cohort.Bounds{MaxPasses: 100, MaxTenure: time.Hour})
		first, err := c.AcquireTraced(t.Context(), true, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancelled, next := acquireLater(ctx, c), acquireLater(t.Context(), c)
		cancel()
		require.ErrorIs(t, (<-cancelled).Err, context.Canceled)
		_, err = c.AcquireTraced(t.Context(), false, nil)
		require.ErrorIs(t, err, zkutil.ErrNotAcquired, "a TryAcquire beside the holder")
		require.NoError(t, first.Leave())
		got := <-next
		require.NoError(t, got.Err)
		require.NoError(t, got.Entry.Leave())
	})
}

func TestCohortsOfAQueueShareTheirBounds(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := fixture.Connect(t, fixture.NewEnsemble(t).Config(time.Minute))
		bounds := cohort.Bounds{MaxPasses: 1, MaxTenure: time.Second}
		for range 2 {
			_, err := cohort.New(fixture.MutexOn(s, "/m"), bounds, 0)
			require.NoError(t, err)
		}
		bounds.Linger = time.Second
		_, err := cohort.New(fixture.MutexOn(s, "/m"), bounds, 0)
		require.ErrorContains(t, err, "other bounds")
		_, err = cohort.New(fixture.MutexOn(s, "/other"), bounds, 0)
		require.NoError(t, err)
	})
}
