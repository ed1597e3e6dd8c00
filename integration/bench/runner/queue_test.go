package runner

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/bench/load"
	"github.com/zkrecipes/zkrecipes/integration/bench/server"
)

// A machine that was stopped took no samples. Calm needs several samples, and time, without a change.
func TestCalmIsLookedAtSeveralTimes(t *testing.T) {
	now := int64(0)
	c := calm{now: func() int64 { return now }}
	look := func(pause time.Duration, figures ...int) bool {
		now += pause.Nanoseconds()
		return c.look(figures)
	}
	require.False(t, look(0, 7, 1))
	require.False(t, look(2*stillness, 7, 1), "one look after a long stop")
	for range stillLooks - 2 {
		require.False(t, look(time.Millisecond, 7, 1))
	}
	require.True(t, look(time.Millisecond, 7, 1))
	require.Zero(t, c.since)

	require.False(t, look(time.Millisecond, 7, 2), "one of the figures has changed")
	since := now
	for range stillLooks {
		require.False(t, look(time.Millisecond, 7, 2), "for too short a time")
	}
	require.True(t, look(stillness, 7, 2))
	require.Equal(t, since, c.since)
}

// counting is a server that has so many watches at each look, and the last number from then on.
type counting struct {
	server.Server
	watches []int
	err     error
}

func (c *counting) Watches(context.Context) (int, error) {
	n := c.watches[0]
	c.watches = c.watches[min(1, len(c.watches)-1):]
	return n, c.err
}

func waitFor(ctx context.Context, s Stage) (time.Duration, error) {
	began := time.Now()
	since, err := untilCalm(ctx, func() int64 { return time.Since(began).Nanoseconds() }, watching(s))
	return time.Duration(since), err
}

// A constant number of watches is not enough, because the lists of the other waiters may still be in flight.
func TestAllHaveWatchesWhenAllWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var watches []int
		for range 100 { // a second
			watches = append(watches, 250)
		}
		s := Stage{Case: Case{Load: load.Load{Contenders: 300}}, server: &counting{watches: append(watches, 300)}}
		since, err := waitFor(t.Context(), s)
		require.NoError(t, err)
		require.Equal(t, time.Second, since)
	})
}

func TestServerThatReportsNoWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		since, err := waitFor(t.Context(), Stage{Case: Case{Load: load.Load{Contenders: 300}}, server: &counting{watches: []int{0}}})
		require.NoError(t, err)
		require.Zero(t, since)
	})
}

func TestQueueThatDoesNotForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := errors.New("late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, late)
		defer cancel()
		s := Stage{Case: Case{Load: load.Load{Contenders: 300}}, server: &counting{watches: []int{299}}}
		_, err := waitFor(ctx, s)
		require.ErrorIs(t, err, late)
		require.ErrorContains(t, err, "299")
	})
	failed := errors.New("failed")
	_, err := waitFor(t.Context(), Stage{server: &counting{watches: []int{1}, err: failed}})
	require.ErrorIs(t, err, failed)
}
