package once_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Tick is the latest multiple of the period, or the next one if that is half a minute ahead or less.
func TestTick(t *testing.T) {
	hour := time.Date(2026, 11, 26, 3, 0, 0, 0, time.UTC)
	for _, now := range []time.Time{
		hour, hour.Add(-2 * time.Millisecond), hour.Add(2 * time.Millisecond), hour.Add(-30 * time.Second), hour.Add(59 * time.Minute),
		hour.In(time.FixedZone("", 3600)),
	} {
		require.Equal(t, once.At(hour), once.Tick(now, time.Hour), "%v", now)
	}
	require.Equal(t, once.At(hour.Add(time.Hour)), once.Tick(hour.Add(time.Hour-30*time.Second), time.Hour))
	require.Equal(t, once.At(hour), once.Tick(hour.Add(4*time.Second), 10*time.Second))
	require.Equal(t, once.At(hour.Add(10*time.Second)), once.Tick(hour.Add(5*time.Second), 10*time.Second))
	monday := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	require.Equal(t, time.Monday, monday.Weekday())
	require.Equal(t, once.At(monday), once.Tick(monday.Add(-time.Second), 7*24*time.Hour))
	for _, period := range []time.Duration{0, -1} {
		require.Panics(t, func() { once.Tick(hour, period) })
	}
}

// A host that starts between two ticks makes up for the previous tick, at every moment of the period.
func TestTickIsNeverTooEarly(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, o := f.host("web-1", 1)
		for range 6 {
			pause(25 * time.Minute)
			err := o.Do(f.Context(), once.Tick(time.Now(), time.Hour), idle)
			if !errors.Is(err, once.ErrDone) {
				require.NoError(f, err)
			}
		}
	})
}

// With WithSkip, a holder of the lock that runs nothing is no run: the next tick waits for the holder, and runs.
func TestSkipOnlyBehindARun(t *testing.T) {
	inBubble(t, func(f *fixture) {
		dead, first := f.host("web-1", 1, once.WithSkip())
		go func() { // ends with its client
			_ = first.Do(context.WithoutCancel(f.Context()), "build-1", func(context.Context, *recipes.Lease) error { dead.Conn().Close(); return nil })
		}()
		pass(time.Minute)
		client, second := f.host("web-2", 0, once.WithSkip())
		require.True(f, f.last(second).FinishedAt.IsZero(), "the run was killed")
		m, err := mutex.New(client, jobs)
		require.NoError(f, err)
		lease, err := m.Acquire(f.Context())
		require.NoError(f, err)
		hasRun := make(chan error, 1)
		go func() { hasRun <- second.Do(f.Context(), "build-2", idle) }() // received below
		pass(time.Second)
		require.Empty(f, hasRun)
		require.NoError(f, lease.Release())
		require.NoError(f, <-hasRun)
	})
}

// With WithSkip and WithMaxRuns, all hosts wait for the run of their tick, which may fail.
func TestSkipAndRetry(t *testing.T) {
	inBubble(t, func(f *fixture) {
		const hosts = 5
		var runs []time.Time
		errs := make(chan error, hosts)
		for range hosts {
			_, o := f.host("web", 1, once.WithSkip(), once.WithMaxRuns(3))
			go func() { errs <- o.Do(f.Context(), tick, fails(&runs)) }() // received below
		}
		for range hosts {
			require.NotErrorIs(f, <-errs, once.ErrRunning)
		}
		require.Len(f, runs, 3)
	})
}

// The end of ctx in the pause is the end of a wait. A pause is no longer than the option says, whatever the clock of another leader shows, and
// cannot use up the whole of WithMaxHold.
func TestRetryPauseIsBounded(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, o := f.host("web-1", 1, once.WithRetryPause(time.Minute))
		f.srv.SetClock(time.Hour)
		var runs []time.Time
		require.ErrorIs(f, o.Do(f.Context(), "build-1", fails(&runs)), errOfWork)
		f.srv.SetClock(0)
		ctx, cancel := context.WithTimeout(f.Context(), time.Second)
		defer cancel()
		var wait *recipes.WaitError
		err := o.Do(ctx, "build-1", fails(&runs))
		require.ErrorAs(f, err, &wait)
		require.ErrorIs(f, err, context.DeadlineExceeded)
		startedAt := time.Now()
		require.ErrorIs(f, o.Do(f.Context(), "build-1", fails(&runs)), errOfWork)
		require.LessOrEqual(f, time.Since(startedAt), time.Minute+time.Second)
		_, err = once.New(client, jobs, once.WithRetryPause(time.Minute), once.WithMaxHold(time.Minute))
		require.ErrorIs(f, err, recipes.ErrInvalidArgument)
	})
}

// idle is a job without work.
func idle(context.Context, *recipes.Lease) error { return nil }

// fails is a job that fails, and counts its runs.
func fails(runs *[]time.Time) func(context.Context, *recipes.Lease) error {
	return func(context.Context, *recipes.Lease) error {
		*runs = append(*runs, time.Now())
		return errOfWork
	}
}

// Twenty hosts with one tick run a failing job as often as the bound allows, and a pause after the last run.
func TestRetryWithAPauseAndABound(t *testing.T) {
	inBubble(t, func(f *fixture) {
		const hosts, pause, maxRuns = 20, time.Minute, 3
		var runs []time.Time
		errs := make(chan error, hosts)
		for range hosts {
			_, o := f.host("web", 1, once.WithRetryPause(pause), once.WithMaxRuns(maxRuns))
			go func() { errs <- o.Do(f.Context(), tick, fails(&runs)) }() // received below
		}
		failed, done := 0, 0
		for range hosts {
			err := <-errs
			if zkutil.IsAny(err, errOfWork) {
				failed++
				continue
			}
			refused, isDone := zkutil.AsType[*once.DoneError](err)
			require.True(f, isDone, err)
			require.Equal(f, maxRuns, refused.Last.Runs)
			done++
		}
		require.Equal(f, []int{maxRuns, hosts - maxRuns}, []int{failed, done})
		require.Len(f, runs, maxRuns)
		for i := 1; i < maxRuns; i++ {
			require.InDelta(f, pause, runs[i].Sub(runs[i-1]), float64(time.Second))
		}
		_, o := f.host("web", 1, once.WithMaxRuns(maxRuns))
		last, err := o.Last(f.Context())
		require.NoError(f, err)
		require.Equal(f, errOfWork.Error(), last.Failure)
		require.Equal(f, maxRuns, last.Runs)
		require.NoError(f, o.Do(f.Context(), "2026-11-26T04:00", idle), "the next tick begins at once, with a count of its own")
		last, err = o.Last(f.Context())
		require.NoError(f, err)
		require.Equal(f, 1, last.Runs)
	})
}

// The pause is bounded by the context. Then nothing ran, and nothing is used up.
func TestPauseEndsWithTheContext(t *testing.T) {
	inBubble(t, func(f *fixture) {
		var runs []time.Time
		_, o := f.host("web-1", 1, once.WithRetryPause(time.Minute))
		require.ErrorIs(f, o.Do(f.Context(), tick, fails(&runs)), errOfWork)
		ctx, cancel := context.WithTimeout(f.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(f, o.Do(ctx, tick, fails(&runs)), context.DeadlineExceeded)
		require.InDelta(f, 10*time.Second, time.Since(start), float64(time.Second))
		require.Len(f, runs, 1)
		require.NoError(f, o.Do(f.Context(), tick, idle))
		require.InDelta(f, time.Minute, time.Since(start), float64(time.Second))
	})
}

// With WithSkip a tick during a run is skipped at once, a tick after a run is not, and a crashed run holds nobody up once its session
// is over.
func TestSkip(t *testing.T) {
	inBubble(t, func(f *fixture) {
		first, one := f.host("web-1", 0, once.WithSkip())
		_, two := f.host("web-2", 1, once.WithSkip())
		running, release := make(chan struct{}), make(chan struct{})
		ended := make(chan error, 1)
		go func() { // ends with release
			ended <- one.Do(f.Context(), "1", func(context.Context, *recipes.Lease) error {
				close(running)
				<-release
				return nil
			})
		}()
		<-running
		start := time.Now()
		for _, do := range []func() error{
			func() error { return two.Do(f.Context(), "2", idle) },
			func() error { return two.DoWithin(f.Context(), time.Minute, "2", idle) },
			func() error { return two.DoWithin(f.Context(), 0, "2", idle) },
		} {
			err := do()
			require.ErrorIs(f, err, once.ErrRunning)
			skipped, isSkipped := zkutil.AsType[*once.RunningError](err)
			require.True(f, isSkipped)
			require.Equal(f, "web-1", skipped.Last.ID)
			require.Equal(f, "2", skipped.Occurrence)
		}
		require.ErrorIs(f, two.Do(f.Context(), "1", idle), once.ErrDone, "the same tick is done, as without WithSkip")
		require.Less(f, time.Since(start), time.Second)
		close(release)
		require.NoError(f, <-ended)
		require.NoError(f, two.Do(f.Context(), "2", idle))

		go func() { // ends with the client
			ended <- one.Do(f.Context(), "3", func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return ctx.Err() })
		}()
		pass(time.Second)
		require.ErrorIs(f, two.Do(f.Context(), "4", idle), once.ErrRunning)
		f.srv.Expire(first.Conn().SessionID())
		require.Error(f, <-ended)
		pass(time.Second)
		require.NoError(f, two.Do(f.Context(), "4", idle))
	})
}

// A contender that has the lock without a run, such as a Forget, is waited for.
func TestSkipWaitsForALockWithoutARun(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, _ := f.host("other", 0)
		m, err := mutex.New(client, jobs)
		require.NoError(f, err)
		lease, err := m.Acquire(f.Context())
		require.NoError(f, err)
		_, o := f.host("web-1", 1, once.WithSkip())
		ended := make(chan error, 1)
		go func() { ended <- o.Do(f.Context(), "1", idle) }() // received below
		pass(time.Minute)
		require.Empty(f, ended)
		require.NoError(f, lease.Release())
		require.NoError(f, <-ended)
	})
}

// While a Do with WithSkip waits, the holder of the lock may start an occurrence. The Do waits on if the holder runs nothing, or an attempt
// at its own occurrence that may fail.
func TestSkipDuringTheWait(t *testing.T) {
	const ended = `,"finishedAt":"2026-11-26T03:00:00Z"`
	for name, tt := range map[string]struct {
		record string // what the holder writes behind its token
		opts   []once.Option
		want   error // nil: it waits
	}{
		"an earlier one":              {`,"occurrence":"1"`, nil, once.ErrRunning},
		"an earlier one, which ended": {`,"occurrence":"1"` + ended, nil, nil},
		"the same":                    {`,"occurrence":"2"`, nil, once.ErrDone},
		"the same, with attempts":     {`,"occurrence":"2"`, []once.Option{once.WithRetry()}, nil},
		"a later one":                 {`,"occurrence":"3"`, nil, once.ErrSuperseded},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				client, _ := f.host("web-1", 0)
				m, err := mutex.New(client, jobs)
				require.NoError(f, err)
				lease, err := m.Acquire(f.Context())
				require.NoError(f, err)
				_, o := f.host("web-2", 1, append(tt.opts, once.WithSkip())...)
				done := make(chan error, 1)
				go func() { done <- o.Do(f.Context(), "2", idle) }() // received below
				pass(time.Second)
				f.srv.Put(jobs+"/last", fmt.Appendf(nil, `{"token":%d%s}`, lease.FencingToken(), tt.record))
				pass(time.Second)
				if tt.want == nil {
					require.Empty(f, done)
				} else {
					require.ErrorIs(f, <-done, tt.want)
					done <- nil
				}
				require.NoError(f, lease.Release())
				require.NoError(f, <-done)
			})
		})
	}
}

// A holder of the lock that leaves before the first occurrence is started is no run.
func TestSkipWithoutARecordOrAHolder(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, _ := f.host("web-1", 0)
		m, err := mutex.New(client, jobs)
		require.NoError(f, err)
		lease, err := m.Acquire(f.Context())
		require.NoError(f, err)
		f.srv.Put(jobs+"/last", nil)
		reads := 0
		f.srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetData && r.Path == jobs+"/last" {
				if reads++; reads == 2 { // after the try
					f.srv.Delete(lease.Path())
				}
			}
			return zktest.Fault{}
		})
		_, o := f.host("web-2", 1, once.WithSkip())
		require.NoError(f, o.Do(f.Context(), "1", idle))
		require.GreaterOrEqual(f, reads, 2)
	})
}

// A run that is over its bound gets the end of its context, its end is recorded, and other hosts wait until it has returned.
func TestMaxHold(t *testing.T) {
	inBubble(t, func(f *fixture) {
		const bound, late = time.Minute, 10 * time.Second
		_, one := f.host("web-1", 0, once.WithMaxHold(bound))
		_, two := f.host("web-2", 1)
		start := time.Now()
		ended := make(chan error, 1)
		go func() { // ends with the run
			ended <- one.Do(f.Context(), "1", func(ctx context.Context, _ *recipes.Lease) error {
				<-ctx.Done()
				pause(late)
				return errors.Join(errOfWork, context.Cause(ctx))
			})
		}()
		pass(time.Second)
		require.NoError(f, two.Do(f.Context(), "2", idle))
		require.InDelta(f, bound+late, time.Since(start), float64(time.Second))
		err := <-ended
		require.ErrorIs(f, err, recipes.ErrMaxHold)
		require.ErrorIs(f, err, errOfWork)
		require.NotErrorIs(f, err, once.ErrNotRecorded)

		require.ErrorIs(f, one.Do(f.Context(), "3", func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return nil }), recipes.ErrMaxHold)
		last, err := one.Last(f.Context())
		require.NoError(f, err)
		require.True(f, last.Finished, "it has returned nil")
	})
}

func TestSchedulerOptionsRefuseBadValues(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, _ := f.host("web-1", 1)
		for _, opt := range []once.Option{once.WithMaxHold(0), once.WithRetryPause(-1), once.WithMaxRuns(0)} {
			_, err := once.New(client, jobs, opt)
			require.ErrorIs(f, err, recipes.ErrInvalidArgument)
		}
	})
}
