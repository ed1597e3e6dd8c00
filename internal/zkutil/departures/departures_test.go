package departures_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/departures"
)

const (
	first  = "_c_00000000-0000-4000-8000-000000000001-"
	second = "_c_00000000-0000-4000-8000-000000000002-"
	limit  = 10 * time.Second
)

// refusedBy returns the rule of a queue in which each of the contenders refuses a try.
func refusedBy(names ...string) func(isDeparting func(string) bool) bool {
	return func(isDeparting func(string) bool) bool {
		for _, name := range names {
			if !isDeparting(name) {
				return true
			}
		}
		return false
	}
}

func begin(set *departures.Set, name string) *departures.Departure {
	d := &departures.Departure{Set: set, Name: name}
	d.Begin()
	return d
}

func TestTryWaitsForADepartureOnly(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		set := departures.NewSet(limit, nil)
		departing := begin(set, first)
		wait := set.NewWait()
		mayListAgain, err := wait.Await(t.Context(), refusedBy(first+"lock-0000000001", second+"lock-0000000002"))
		require.NoError(t, err)
		require.False(t, mayListAgain, "another contender refuses the try as well")
		start := time.Now()
		time.AfterFunc(time.Second, departing.End)
		mayListAgain, err = wait.Await(t.Context(), refusedBy(first+"lock-0000000001"))
		require.NoError(t, err)
		require.True(t, mayListAgain)
		require.Equal(t, time.Second, time.Since(start))
		mayListAgain, err = wait.Await(t.Context(), refusedBy(second+"lock-0000000002"))
		require.NoError(t, err)
		require.True(t, mayListAgain, "the listing may be older than the end of the departure")
		mayListAgain, err = wait.Await(t.Context(), refusedBy(second+"lock-0000000002"))
		require.NoError(t, err)
		require.False(t, mayListAgain, "nothing ended since, and nothing departs")
	})
}

func TestAllWaitsOfATryShareOneLimit(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		set := departures.NewSet(limit, nil)
		one, other := begin(set, first), begin(set, second)
		defer other.End()
		wait, start := set.NewWait(), time.Now()
		time.AfterFunc(7*time.Second, one.End)
		for _, want := range []bool{true, true, false} {
			mayListAgain, err := wait.Await(t.Context(), refusedBy())
			require.NoError(t, err)
			require.Equal(t, want, mayListAgain)
		}
		require.Equal(t, limit, time.Since(start))
	})
}

func TestWaitEndsWithTheCallerAndTheSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		closing := make(chan struct{})
		set := departures.NewSet(limit, closing)
		defer begin(set, first).End()
		wait := set.NewWait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := wait.Await(ctx, refusedBy())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		close(closing)
		_, err = wait.Await(t.Context(), refusedBy())
		require.ErrorIs(t, err, zkutil.ErrClosed)
	})
}

// The undo of an abandoned create may end before its caller is back.
func TestDepartureThatHasEndedDoesNotBegin(t *testing.T) {
	set := departures.NewSet(limit, nil)
	d := departures.Departure{Set: set, Name: first}
	wait := set.NewWait()
	d.End()
	d.Begin()
	mayListAgain, err := wait.Await(t.Context(), refusedBy())
	require.NoError(t, err)
	require.False(t, mayListAgain)
}

// The first departure of a contender counts, and znodes of other clients have none.
func TestContenderDepartsOnce(t *testing.T) {
	set := departures.NewSet(limit, nil)
	defer begin(set, first).End()
	wait := set.NewWait()
	begin(set, first+"lock-0000000001").End()
	begin(set, "lock-0000000002").End()
	mayListAgain, err := wait.Await(t.Context(), func(isDeparting func(string) bool) bool {
		require.True(t, isDeparting(first+"lock-0000000001"))
		require.False(t, isDeparting("lock-0000000002"))
		return true
	})
	require.NoError(t, err)
	require.False(t, mayListAgain, "no departure ended")
}

// Behind the limit nothing is listed any more, whatever ended meanwhile.
func TestNoListingBehindTheLimit(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		set := departures.NewSet(limit, nil)
		one, other := begin(set, first), begin(set, second)
		defer other.End()
		wait := set.NewWait()
		time.AfterFunc(time.Second, one.End)
		mayListAgain, err := wait.Await(t.Context(), refusedBy())
		require.NoError(t, err)
		require.True(t, mayListAgain)
		time.Sleep(limit - time.Second) //nolint:forbidigo // virtual time
		other.End()
		mayListAgain, err = wait.Await(t.Context(), refusedBy())
		require.NoError(t, err)
		require.False(t, mayListAgain)
	})
}
