package once_test

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
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// maxAhead is how far ahead of the servers' clock an instant may be started.
const maxAhead = time.Minute

// loggedHost is host with a log.
func (f *fixture) loggedHost(id string, log *testkit.Log) *once.Once {
	f.Helper()
	client := zkclient.ConnectTo(f, f.srv, f.srv.Addrs(), recipes.WithSessionTimeout(testclient.SessionTimeout),
		recipes.WithLogger(log.Logger(slog.LevelWarn)), recipes.WithID(id))
	o, err := once.New(client, jobs)
	require.NoError(f, err)
	return o
}

// Three hosts have an hourly job for a year. One boots with a clock a year ahead, and asks for one tick; one is a year late all the
// time, and one 2 ms early. Each tick runs once, on a host whose clock is right, and the others learn why theirs does not run.
func TestHostsWithWrongClocks(t *testing.T) {
	ticks := testkit.Shorter(8736, 200)
	inBubble(t, func(f *fixture) {
		var logs [4]testkit.Log
		var hosts [4]*once.Once
		for i := range hosts {
			hosts[i] = f.loggedHost(fmt.Sprint("host-", i), &logs[i])
		}
		const ahead, behind, early, right = 0, 1, 2, 3
		start := time.Now().Truncate(time.Hour)
		runs := map[string]int{}
		ask := func(host int, clock time.Time) error {
			tick := once.At(clock.Round(time.Hour))
			return hosts[host].Do(f.Context(), tick, func(context.Context, *recipes.Lease) error {
				runs[tick]++
				return nil
			})
		}
		for n := range ticks {
			now := start.Add(time.Duration(n) * time.Hour) // by the servers' clock, so that no virtual time has to pass
			f.srv.SetClock(time.Until(now) - 2*time.Millisecond)
			if n == 1 {
				require.ErrorIs(f, ask(ahead, now.AddDate(1, 0, 0)), once.ErrTooEarly)
			}
			require.NoError(f, ask(early, now.Add(-2*time.Millisecond)))
			require.ErrorIs(f, ask(right, now.Add(2*time.Millisecond)), once.ErrDone)
			require.ErrorIs(f, ask(behind, now.AddDate(-1, 0, 0)), once.ErrSuperseded)
		}
		require.Len(f, runs, ticks)
		for tick, n := range runs {
			require.Equal(f, 1, n, tick)
		}
		pass(time.Second)
		for _, i := range []int{ahead, early, right} {
			require.Empty(f, logs[i].Take())
		}
		require.Len(f, logs[behind].Take(), ticks, "one for each record")
	})
}

// An occurrence superseded by a record is logged once per record, and returned each time as an error that does not match
// ErrDone.
func TestSupersededIsLoggedOncePerRecord(t *testing.T) {
	inBubble(t, func(f *fixture) {
		var log testkit.Log
		o := f.loggedHost("web-1", &log)
		for _, latest := range []string{"build-100", "build-200"} {
			var c counter
			require.NoError(f, o.Do(f.Context(), latest, c.run))
			for n := range 50 {
				err := o.Do(f.Context(), fmt.Sprint("build-", n), c.run)
				require.ErrorIs(f, err, once.ErrSuperseded)
				require.NotErrorIs(f, err, once.ErrDone)
			}
			require.EqualValues(f, 1, c.calls.Load())
			pass(time.Second)
			lines := log.Take()
			require.Len(f, lines, 1)
			require.Contains(f, lines[0], fmt.Sprintf(
				`level=WARN msg="occurrence superseded, not run" path=%s occurrence=build-0 latest=%s id=web-1`, jobs, latest))
		}
	})
}

// A host that waits for the lock with an occurrence that another host supersedes meanwhile does not report the
// occurrence as done.
func TestSupersededWhileWaiting(t *testing.T) {
	inBubble(t, func(f *fixture) {
		holder, _ := f.host("web-1", 0)
		_, second := f.host("web-2", 1)
		m, err := mutex.New(holder, jobs)
		require.NoError(f, err)
		_, err = m.Acquire(f.Context())
		require.NoError(f, err)
		result := make(chan error)
		go func() { result <- second.Do(f.Context(), "8", (&counter{}).run) }()
		pass(time.Second)
		f.srv.Put(record, []byte(`{"occurrence":"9","id":"web-3","token":7}`))
		err = <-result
		require.ErrorIs(f, err, once.ErrSuperseded)
		require.NotErrorIs(f, err, once.ErrDone)
	})
}

// The bound of an early start is met, and passed by a millisecond. It is measured at the start, not when the wait begins.
func TestBoundOfAnEarlyStart(t *testing.T) {
	for _, wait := range []time.Duration{0, 20 * time.Minute} {
		for _, skew := range []time.Duration{0, time.Hour, -24 * time.Hour} {
			t.Run(fmt.Sprint(wait, " of wait, servers ahead by ", skew), func(t *testing.T) {
				inBubble(t, func(f *fixture) {
					client, o := f.host("web-1", 0)
					f.srv.SetClock(skew)
					latest := time.Now().Add(wait + skew + maxAhead)
					do := func(instant time.Time) error {
						m, err := mutex.New(client, jobs)
						require.NoError(f, err)
						lease, err := m.Acquire(f.Context())
						require.NoError(f, err)
						result := make(chan error)
						go func() { result <- o.Do(f.Context(), once.At(instant), (&counter{}).run) }()
						pass(wait)
						require.NoError(f, lease.Release())
						latest = latest.Add(wait)
						return <-result
					}
					err := do(latest.Add(time.Millisecond))
					require.ErrorIs(f, err, once.ErrTooEarly)
					require.ErrorContains(f, err, "is 1m0.001s ahead of the servers' clock")
					require.Zero(f, f.last(o), "nothing was written")
					require.NoError(f, do(latest))
				})
			})
		}
	}
}

// The deadline of a start is met to the millisecond, by the servers' clock.
func TestStartDeadline(t *testing.T) {
	for _, skew := range []time.Duration{0, time.Hour, -24 * time.Hour} {
		inBubble(t, func(f *fixture) {
			_, o := f.host("web-1", 0, once.WithDeadline(10*time.Minute))
			f.srv.SetClock(skew)
			now := time.Now().Add(skew)
			var c counter
			for _, late := range []time.Duration{24 * 365 * time.Hour, 10 * time.Minute} {
				err := o.Do(f.Context(), once.At(now.Add(-late)), c.run)
				require.ErrorIs(f, err, once.ErrTooLate)
				require.ErrorContains(f, err, "10m0s or more after")
			}
			require.Zero(f, c.calls.Load())
			require.Zero(f, f.last(o))
			require.NoError(f, o.Do(f.Context(), once.At(now.Add(-10*time.Minute+time.Millisecond)), c.run))
			require.ErrorIs(f, o.Do(f.Context(), "tonight", c.run), recipes.ErrInvalidArgument)
		})
	}
	inBubble(t, func(f *fixture) {
		client, _ := f.host("web-1", 0)
		require.ErrorIs(f, newError(client, jobs, once.WithDeadline(0)), recipes.ErrInvalidArgument)
	})
}

// The deadline passes while Do waits for the lock, or for the answer to its start. The function is not called, and the
// occurrence is not recorded.
func TestStartDeadlinePassesMeanwhile(t *testing.T) {
	const deadline = unclear
	for name, delay := range map[string]func(f *fixture, client *recipes.Client){
		"behind another holder": func(f *fixture, client *recipes.Client) {
			m, err := mutex.New(client, jobs)
			require.NoError(f, err)
			lease, err := m.Acquire(f.Context())
			require.NoError(f, err)
			time.AfterFunc(deadline+time.Second, func() { _ = lease.Release() })
		},
		"lost starts": func(f *fixture, client *recipes.Client) {
			calm := f.loseStarts(client)
			time.AfterFunc(deadline+time.Second, calm)
		},
		"slow commits": func(f *fixture, _ *recipes.Client) {
			f.srv.SlowCommits(deadline * 3 / 4)
			time.AfterFunc(deadline+time.Second, func() { f.srv.SlowCommits(0) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				client, o := f.host("web-1", 0, once.WithDeadline(deadline))
				_, other := f.host("web-2", 1)
				tick := once.At(time.Now())
				delay(f, client)
				var c counter
				err := o.Do(f.Context(), tick, c.run)
				require.ErrorIs(f, err, once.ErrTooLate)
				require.Zero(f, c.calls.Load())
				pass(time.Minute)
				require.Zero(f, f.last(other))
				require.NoError(f, other.Do(f.Context(), tick, c.run), "a host without a deadline")
			})
		})
	}
}

// A start that begins late has the rest of the deadline alone.
func TestLateStartHasTheRestOfItsDeadline(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, o := f.host("web-1", 0, once.WithDeadline(time.Hour))
		f.loseStarts(client)
		instant := time.Now()
		pass(time.Hour - unclear/2)
		var c counter
		require.ErrorIs(f, o.Do(f.Context(), once.At(instant), c.run), once.ErrTooLate)
		require.Zero(f, c.calls.Load())
	})
}

// The servers' clock steps back when another server leads. Nothing runs twice, and what does not run is not called done.
func TestClockOfANewLeader(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, first := f.host("web-1", 0)
		_, second := f.host("web-2", 1)
		now := time.Now().Truncate(time.Hour)
		f.srv.SetClock(time.Hour)
		runs := map[string]int{}
		do := func(o *once.Once, instant time.Time) error {
			return o.Do(f.Context(), once.At(instant), func(context.Context, *recipes.Lease) error {
				runs[once.At(instant)]++
				return nil
			})
		}
		require.NoError(f, do(first, now.Add(30*time.Minute)))
		require.NoError(f, do(first, now.Add(time.Hour)))
		f.srv.ElectLeader()
		f.srv.SetClock(0)
		pass(time.Minute)
		for _, o := range []*once.Once{first, second} {
			require.ErrorIs(f, do(o, now), once.ErrSuperseded)
			require.ErrorIs(f, do(o, now.Add(30*time.Minute)), once.ErrSuperseded)
			require.ErrorIs(f, do(o, now.Add(time.Hour)), once.ErrDone)
			require.ErrorIs(f, do(o, now.Add(2*time.Hour)), once.ErrTooEarly)
		}
		pass(2*time.Hour - time.Minute)
		require.NoError(f, do(second, now.Add(2*time.Hour)))
		for tick, n := range runs {
			require.Equal(f, 1, n, tick)
		}
		require.Len(f, runs, 3)
	})
}

// A start is measured without a request of its own.
func TestRequestsOfAnInstant(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, o := f.host("web-1", 0, once.WithDeadline(time.Minute))
		require.NoError(f, o.Do(f.Context(), once.At(time.Now()), (&counter{}).run))
		pass(time.Second)
		log := f.srv.Observe()
		require.NoError(f, o.Do(f.Context(), once.At(time.Now()), (&counter{}).run))
		pass(time.Second)
		var ops []string
		for _, r := range log.Requests() {
			ops = append(ops, fmt.Sprint(r.Op))
		}
		require.Equal(f, "getData create2 getChildren2 getData multi multi", strings.Join(ops, " "))
	})
}

// The caller's context ends with the error of another Do as its cause, as under errgroup. That error says nothing about this
// occurrence.
func TestCauseFromAnotherOnce(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, o := f.host("web-1", 0)
		require.NoError(f, o.Do(f.Context(), tick, (&counter{}).run))
		done := o.Do(f.Context(), tick, (&counter{}).run)
		require.ErrorIs(f, done, once.ErrDone)

		other, err := once.New(client, "/jobs/other")
		require.NoError(f, err)
		m, err := mutex.New(client, "/jobs/other")
		require.NoError(f, err)
		_, err = m.Acquire(f.Context())
		require.NoError(f, err)
		ctx, cancel := context.WithCancelCause(f.Context())
		var ended sync.WaitGroup
		ended.Go(func() { err = other.Do(ctx, tick, (&counter{}).run) })
		pass(time.Second)
		cancel(done)
		ended.Wait()
		var isWait *recipes.WaitError
		require.ErrorAs(f, err, &isWait)
		require.NotContains(f, err.Error(), "once: do /jobs/other: done")
	})
}

// A server that does not return the time of a created znode shows it in the first read.
func TestClockOfAServerWithoutCreate2(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t, zktest.WithUnknownOps(zktest.UnknownUnimplemented, zktest.OpCreate2))
		o, err := once.New(testclient.Connect(t, srv), jobs, once.WithDeadline(time.Minute))
		require.NoError(t, err)
		srv.SetClock(time.Hour)
		require.ErrorIs(t, o.Do(t.Context(), once.At(time.Now()), (&counter{}).run), once.ErrTooLate)
		require.ErrorIs(t, o.Do(t.Context(), once.At(time.Now().Add(3*time.Hour)), (&counter{}).run), once.ErrTooEarly)
		require.NoError(t, o.Do(t.Context(), once.At(time.Now().Add(time.Hour)), (&counter{}).run))
	})
}

// The create of the lock's znode is answered late, or not at all. The start is compared with the less favourable
// time.
func TestClockOfASlowCreate(t *testing.T) {
	for name, strike := range map[string]func(f *fixture, client *recipes.Client){
		"slow": func(f *fixture, client *recipes.Client) {
			f.srv.Delay(zktest.OpCreate2, time.Second, client.Conn().SessionID())
		},
		"lost": func(f *fixture, client *recipes.Client) {
			f.srv.DropReply(zktest.OpCreate2, 1, client.Conn().SessionID())
			f.srv.Delay(zktest.OpSync, time.Second, client.Conn().SessionID())
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				client, o := f.host("web-1", 0, once.WithDeadline(time.Minute))
				for _, c := range []struct {
					instant time.Duration
					want    error
				}{
					{maxAhead + 3*time.Second, once.ErrTooEarly},
					{-time.Minute, once.ErrTooLate},
				} {
					strike(f, client)
					require.ErrorIs(f, o.Do(f.Context(), once.At(time.Now().Add(c.instant)), (&counter{}).run), c.want, "%v", c.instant)
				}
				require.NoError(f, o.Do(f.Context(), once.At(time.Now()), (&counter{}).run))
			})
		})
	}
}
