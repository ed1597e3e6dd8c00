package once_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

const (
	jobs   = "/jobs/report"
	record = jobs + "/last"
	tick   = "2026-11-26T03:00"
)

// fixture is a test in a bubble, with an ensemble of two servers, the first for a client with faults, the second for all
// others.
type fixture struct {
	*testing.T
	srv *zktest.Server
}

func inBubble(t *testing.T, test func(f *fixture)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		test(&fixture{t, zktest.NewServer(t, zktest.WithServers(2))})
	})
}

// host returns the client of a host, and its Once.
func (f *fixture) host(id string, server int, opts ...once.Option) (*recipes.Client, *once.Once) {
	f.Helper()
	client := zkclient.ConnectTo(f, f.srv, f.srv.Addrs()[server:][:1], recipes.WithSessionTimeout(testclient.SessionTimeout))
	o, err := once.New(client, jobs, append([]once.Option{once.WithID(id)}, opts...)...)
	require.NoError(f, err)
	pass(time.Millisecond)
	return client, o
}

// pass lets virtual time pass, including all events due at the end of d.
func pass(d time.Duration) {
	pause(d)
	synctest.Wait()
}

// pause sleeps in virtual time, without waiting for other goroutines.
func pause(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // virtual time

func (f *fixture) last(o *once.Once) once.Record {
	f.Helper()
	last, err := o.Last(f.Context())
	require.NoError(f, err)
	return last
}

// counter is a function of a Do that counts its calls.
type counter struct{ calls atomic.Int32 }

func (c *counter) run(context.Context, *recipes.Lease) error {
	c.calls.Add(1)
	return nil
}

var errOfWork = errors.New("disk full")

// Ten hosts have the same schedule, and their clocks differ by up to 0.4 s. With only a lock, each tick runs again for
// each host that arrives after the end of a run, as docs/evidence/user-issues.md shows for ShedLock, gocron and asynq.
//
//nolint:gocognit // the same hosts twice
func TestOneRunPerTickOnHostsWithOtherClocks(t *testing.T) {
	const hosts, ticks = 10, 10
	runs := func(t *testing.T, do func(ctx context.Context, client *recipes.Client, tick time.Time, work func()) error) int {
		t.Helper()
		var calls atomic.Int32
		inBubble(t, func(f *fixture) {
			start := time.Now().Truncate(time.Minute).Add(time.Minute)
			var all sync.WaitGroup
			for i := range hosts {
				client, _ := f.host(fmt.Sprint("host-", i), i%2)
				all.Go(func() {
					for n := range ticks {
						at := start.Add(time.Duration(n) * time.Minute)
						pause(time.Until(at) + time.Duration(i)*400*time.Millisecond/(hosts-1))
						err := do(f.Context(), client, time.Now().Truncate(time.Minute), func() {
							calls.Add(1)
							pause(100 * time.Millisecond)
						})
						if err != nil && !errors.Is(err, once.ErrDone) {
							f.Error(err)
						}
					}
				})
			}
			all.Wait()
		})
		return int(calls.Load())
	}
	withLock := runs(t, func(ctx context.Context, client *recipes.Client, _ time.Time, work func()) error {
		m, err := mutex.New(client, jobs)
		if err != nil {
			return err
		}
		lease, err := m.TryAcquire(ctx)
		if errors.Is(err, recipes.ErrNotAcquired) {
			return nil
		}
		if err != nil {
			return err
		}
		work()
		return lease.Release()
	})
	require.Greater(t, withLock, 2*ticks, "a lock alone")
	require.Equal(t, ticks, runs(t, func(ctx context.Context, client *recipes.Client, tick time.Time, work func()) error {
		o, err := once.New(client, jobs)
		if err != nil {
			return err
		}
		return o.Do(ctx, once.At(tick), func(context.Context, *recipes.Lease) error {
			work()
			return nil
		})
	}))
}

// A late host learns who did the work, and when, by a single read.
func TestLateHostLearnsWhoAndWhen(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, first := f.host("web-1", 0)
		_, second := f.host("web-2", 1)
		require.Zero(f, f.last(first))
		const took = 6500 * time.Millisecond
		began := time.Now()
		var token int64
		require.NoError(f, first.Do(f.Context(), tick, func(_ context.Context, lease *recipes.Lease) error {
			token = lease.FencingToken()
			running := f.last(second)
			require.Equal(f, once.Record{Occurrence: tick, ID: "web-1", Token: token, Runs: 1, StartedAt: began.UTC()}, running)
			pass(took) // not a multiple of the heartbeats' interval: none is under way at the end
			return nil
		}))
		log := f.srv.Observe()
		var c counter
		err := second.Do(f.Context(), tick, c.run)
		require.ErrorIs(f, err, once.ErrDone)
		done, ok := zkutil.AsType[*once.DoneError](err)
		require.True(f, ok)
		require.Equal(f, once.Record{
			Occurrence: tick, ID: "web-1", Token: token, Runs: 1, Finished: true, StartedAt: began.UTC(), FinishedAt: began.Add(took).UTC(),
		}, done.Last)
		require.Equal(f, "once: do /jobs/report: done: 2026-11-26T03:00 by web-1: finished at 2000-01-01T00:00:06Z", err.Error())
		require.Zero(f, c.calls.Load())
		require.Equal(f, 1, log.Count(zktest.OpAny))
		require.ErrorIs(f, second.Do(f.Context(), "2026-11-26T02:00", c.run), once.ErrSuperseded, "an earlier one")
		require.NoError(f, second.Do(f.Context(), "2026-11-26T04:00", c.run), "a later one")
		require.EqualValues(f, 1, c.calls.Load())
	})
}

// For the traces, late hosts are no failures: they did not get the lock.
func TestTracesOfADoneOccurrence(t *testing.T) {
	inBubble(t, func(f *fixture) {
		var ends []recipes.AcquireEnd
		client := zkclient.ConnectTo(f, f.srv, f.srv.Addrs(), recipes.WithTrace(&recipes.Trace{
			AcquireEnd: func(_ context.Context, e recipes.AcquireEnd) { ends = append(ends, e) },
		}))
		o, err := once.New(client, jobs, once.WithName("report"))
		require.NoError(f, err)
		var c counter
		require.NoError(f, o.Do(f.Context(), tick, c.run))
		err = o.Do(f.Context(), tick, c.run)
		require.ErrorIs(f, err, once.ErrDone)
		require.NotErrorIs(f, err, recipes.ErrNotAcquired)
		require.Len(f, ends, 2)
		require.NoError(f, ends[0].Err)
		require.Equal(f, "once", ends[0].Recipe)
		require.Equal(f, "report", ends[0].Name)
		require.ErrorIs(f, ends[1].Err, recipes.ErrNotAcquired)
	})
}

// A host that waits for the lock stops waiting when the other host starts the occurrence, not at the end of the run.
func TestWaiterLeavesAtTheStart(t *testing.T) {
	inBubble(t, func(f *fixture) {
		holder, first := f.host("web-1", 0)
		_, second := f.host("web-2", 1)
		m, err := mutex.New(holder, jobs)
		require.NoError(f, err)
		lease, err := m.Acquire(f.Context())
		require.NoError(f, err)
		var c counter
		results := make(chan error, 2)
		for _, o := range []*once.Once{first, second} {
			go func() {
				results <- o.Do(f.Context(), tick, func(context.Context, *recipes.Lease) error {
					c.calls.Add(1)
					pause(time.Hour)
					return nil
				})
			}()
			pass(time.Second)
		}
		require.Empty(f, results)
		require.NoError(f, lease.Release())
		pass(time.Second)
		require.ErrorIs(f, <-results, once.ErrDone)
		require.Empty(f, results, "the run goes on")
		require.Len(f, f.srv.Children(jobs), 2, "the record, and the runner's znode")
		require.NoError(f, <-results)
		require.EqualValues(f, 1, c.calls.Load())
	})
}

// The process ends during its run. At most once means that no host runs the occurrence again, unless it uses WithRetry.
func TestCrashWhileRunning(t *testing.T) {
	for _, retries := range []bool{false, true} {
		inBubble(t, func(f *fixture) {
			var options []once.Option
			if retries {
				options = append(options, once.WithRetry())
			}
			crashing, first := f.host("web-1", 0, options...)
			_, second := f.host("web-2", 1, options...)
			ended := make(chan error)
			go func() {
				ended <- first.Do(f.Context(), tick, func(ctx context.Context, _ *recipes.Lease) error {
					f.srv.Partition(crashing.Conn().SessionID())
					<-ctx.Done()
					return nil // the work is finished, and its host does not know whether that counts
				})
			}()
			synctest.Wait()
			var c counter
			err := second.Do(f.Context(), tick, c.run)
			last := f.last(second)
			if retries {
				require.NoError(f, err)
				require.EqualValues(f, 1, c.calls.Load())
				require.Equal(f, "web-2", last.ID)
				require.True(f, last.Finished)
			} else {
				require.ErrorIs(f, err, once.ErrDone)
				require.Zero(f, c.calls.Load())
				require.Equal(f, "web-1", last.ID)
				require.False(f, last.Finished)
				require.Zero(f, last.FinishedAt)
			}
			require.ErrorIs(f, <-ended, recipes.ErrSessionLost)
			f.srv.Heal()
			pass(time.Minute)
			require.Equal(f, last, f.last(second), "the host that has lost its lease writes nothing any more")
		})
	}
}

// The record says that a run failed. Only with WithRetry does the next Do repeat it, until it succeeds.
func TestFailedRun(t *testing.T) {
	for _, retries := range []bool{false, true} {
		inBubble(t, func(f *fixture) {
			var options []once.Option
			if retries {
				options = append(options, once.WithRetry())
			}
			_, o := f.host("web-1", 0, options...)
			err := o.Do(f.Context(), tick, func(context.Context, *recipes.Lease) error { return errOfWork })
			require.Equal(f, errOfWork, err)
			require.Equal(f, "disk full", f.last(o).Failure)
			require.NotZero(f, f.last(o).FinishedAt)
			require.Contains(f, f.last(o).String(), "failed at 2000-01-01T00:00:00Z: disk full")
			var c counter
			err = o.Do(f.Context(), tick, c.run)
			if !retries {
				require.ErrorIs(f, err, once.ErrDone)
				return
			}
			require.NoError(f, err)
			require.ErrorIs(f, o.Do(f.Context(), tick, c.run), once.ErrDone)
			require.EqualValues(f, 1, c.calls.Load())
			require.Empty(f, f.last(o).Failure)
		})
	}
}

func TestPanicIsRecordedAndPropagates(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, o := f.host("web-1", 0)
		require.PanicsWithValue(f, "broken", func() {
			_ = o.Do(f.Context(), tick, func(context.Context, *recipes.Lease) error { panic("broken") })
		})
		require.Equal(f, "panic", f.last(o).Failure)
		require.Equal(f, []string{"last"}, f.srv.Children(jobs), "the lock is free")
	})
}

// Each request of a Do can lose its answer, or get lost itself. The function is called once all the same, and by one host alone.
func TestLostAnswersAtEveryRequest(t *testing.T) {
	for _, loss := range []zktest.Loss{zktest.ReplyLost, zktest.RequestLost} {
		for n := 0; ; n++ {
			isReached := false
			inBubble(t, func(f *fixture) {
				client, first := f.host("web-1", 0)
				_, second := f.host("web-2", 1)
				session, count := client.Conn().SessionID(), 0
				remove := f.srv.Inject(func(r zktest.Request) zktest.Fault {
					if r.Session != session || r.Op == zktest.OpPing || r.Op == zktest.OpConnect {
						return zktest.Fault{}
					}
					if count++; count-1 == n {
						isReached = true
						return zktest.Fault{Lost: loss}
					}
					return zktest.Fault{}
				})
				var c counter
				require.NoError(f, first.Do(f.Context(), tick, c.run))
				remove()
				require.ErrorIs(f, second.Do(f.Context(), tick, c.run), once.ErrDone)
				require.EqualValues(f, 1, c.calls.Load())
				require.True(f, f.last(second).Finished)
				require.Equal(f, []string{"last"}, f.srv.Children(jobs))
			})
			if !isReached {
				require.Greater(t, n, 5)
				break
			}
		}
	}
}

// ctx ends while the outcome of the start is unknown. The function is not called, and the start is undone, so that another
// host can run the occurrence, whether the server executed the request or executes it later.
func TestUncertainStartIsTakenBack(t *testing.T) {
	for name, strike := range map[string]func(f *fixture, session int64){
		"executed": func(f *fixture, session int64) { f.srv.DropReply(zktest.OpMulti, math.MaxInt, session) },
		"lost":     func(f *fixture, session int64) { f.srv.DropRequest(zktest.OpMulti, math.MaxInt, session) },
		"late": func(f *fixture, session int64) { // the quorum executes it after the end of the connection, during the next one
			f.srv.SlowCommits(3 * time.Second)
			until := time.Now().Add(5 * time.Second)
			f.srv.Inject(func(r zktest.Request) zktest.Fault { // so that the lock's znode still exists
				if r.Op == zktest.OpDelete && time.Now().Before(until) {
					return zktest.Fault{Refusal: zktest.RefuseTimeout}
				}
				return zktest.Fault{}
			})
			time.AfterFunc(1500*time.Millisecond, func() {
				f.srv.SlowCommits(0)
				f.srv.Disconnect(session)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				client, first := f.host("web-1", 0)
				_, second := f.host("web-2", 1)
				require.NoError(f, first.Do(f.Context(), "2026-11-26T02:00", (&counter{}).run))
				before := f.last(first)
				isStruck := false
				remove := f.srv.Inject(func(r zktest.Request) zktest.Fault {
					if r.Op == zktest.OpGetData && r.Path == record && len(f.srv.Children(jobs)) == 2 && !isStruck { // the holder's look, before the start
						isStruck = true
						strike(f, client.Conn().SessionID())
					}
					return zktest.Fault{}
				})
				ctx, cancel := context.WithTimeout(f.Context(), unclear)
				defer cancel()
				var c counter
				err := first.Do(ctx, tick, c.run)
				require.ErrorIs(f, err, context.DeadlineExceeded)
				require.Contains(f, err.Error(), "the function was not called")
				require.Zero(f, c.calls.Load())
				remove()
				pass(time.Minute)
				require.Equal(f, before, f.last(second))
				require.NoError(f, second.Do(f.Context(), tick, c.run))
				require.EqualValues(f, 1, c.calls.Load())
			})
		})
	}
}

// The lease is lost before the start. The error does not speak of the function's result, because the function was not called.
func TestLossBeforeTheStart(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, o := f.host("web-1", 0)
		f.beforeTheStart(func() { f.srv.Expire(client.Conn().SessionID()) })
		var c counter
		err := o.Do(f.Context(), tick, c.run)
		require.ErrorIs(f, err, recipes.ErrSessionLost)
		require.Contains(f, err.Error(), "once: do "+jobs+": session lost; the start was not recorded, so the function was not called: ")
		require.Zero(f, c.calls.Load())
		require.NoError(f, o.Do(f.Context(), tick, c.run))
	})
}

// The end can't be recorded. Do says so, next to the function's result, and the occurrence counts as done.
func TestEndNotRecorded(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, o := f.host("web-1", 0)
		err := o.Do(f.Context(), tick, func(context.Context, *recipes.Lease) error {
			_, err := client.Conn().SetACL(record, zk.WorldACL(zk.PermRead), -1)
			require.NoError(f, err)
			return errOfWork
		})
		require.ErrorIs(f, err, once.ErrNotRecorded)
		require.ErrorIs(f, err, zk.ErrNoAuth)
		require.ErrorIs(f, err, errOfWork)
		require.Zero(f, f.last(o).FinishedAt)
		require.ErrorIs(f, o.Do(f.Context(), tick, (&counter{}).run), once.ErrDone)
		require.Equal(f, recipes.Connected, client.State())
	})
}

// nilError is an error whose method panics for a nil pointer, which a function returns by mistake.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// An error whose method panics is an error like any other, and the end of the run is recorded.
func TestErrorThatPanics(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, o := f.host("web-1", 0)
		var failure *nilError
		require.NotPanics(f, func() {
			err := o.Do(f.Context(), tick, func(context.Context, *recipes.Lease) error { return failure })
			require.True(f, err == error(failure), "it is returned as it is") //nolint:errorlint,testifylint // its methods panic
		})
		last := f.last(o)
		require.NotZero(f, last.FinishedAt)
		require.False(f, last.Finished)
		require.NotEmpty(f, last.Failure)
	})
}

// A function that releases its lease leaves no lease under which to record the end. Do says so, although the function
// succeeded.
func TestEndNotRecordedAfterRelease(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, o := f.host("web-1", 0, once.WithRetry())
		err := o.Do(f.Context(), tick, func(_ context.Context, lease *recipes.Lease) error { return lease.Release() })
		require.ErrorIs(f, err, once.ErrNotRecorded)
		require.ErrorIs(f, err, recipes.ErrReleased)
		require.False(f, f.last(o).Finished)
		var c counter
		require.NoError(f, o.Do(f.Context(), tick, c.run), "it runs again")
		require.EqualValues(f, 1, c.calls.Load())
	})
}

// A znode with another content is left alone.
func TestRecordOfAnotherProgram(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, o := f.host("web-1", 0)
		for _, content := range []string{"7", `{"version":1}`, "[]", "{"} {
			f.srv.Put(record, []byte(content))
			var c counter
			err := o.Do(f.Context(), tick, c.run)
			require.ErrorIs(f, err, once.ErrRecord)
			require.Contains(f, err.Error(), record)
			_, err = o.Last(f.Context())
			require.ErrorIs(f, err, once.ErrRecord)
			data, _, _ := f.srv.Get(record)
			require.Equal(f, content, string(data))
			require.Zero(f, c.calls.Load())
		}
		f.srv.Put(record, []byte(" \n"))
		require.NoError(f, o.Do(f.Context(), tick, (&counter{}).run), "a znode made by hand")
	})
}

func TestContextThatEndsBeforeTheLock(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, first := f.host("web-1", 0)
		_, second := f.host("web-2", 1)
		var c counter
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		err := second.Do(ctx, tick, c.run)
		_, isWait := zkutil.AsType[*recipes.WaitError](err)
		require.True(f, isWait, err)
		require.NoError(f, first.Do(f.Context(), tick, func(context.Context, *recipes.Lease) error {
			ctx, cancel := context.WithTimeout(f.Context(), time.Second)
			defer cancel()
			err := second.Do(ctx, "2026-11-26T04:00", c.run) // no host started this one
			wait, isWait := zkutil.AsType[*recipes.WaitError](err)
			require.True(f, isWait, err)
			require.Equal(f, 2, wait.Position)

			began := time.Now()
			err = second.DoWithin(f.Context(), time.Second, "2026-11-26T04:00", c.run)
			_, isWait = zkutil.AsType[*recipes.WaitError](err)
			require.True(f, isWait, err)
			require.Equal(f, time.Second, time.Since(began))
			err = second.DoWithin(f.Context(), 0, "2026-11-26T04:00", c.run)
			require.ErrorIs(f, err, recipes.ErrNotAcquired)
			require.ErrorIs(f, second.DoWithin(f.Context(), 0, tick, c.run), once.ErrDone)
			return nil
		}))
		require.Zero(f, c.calls.Load())
	})
}

// Bad input is refused at the call, and nothing is sent.
func TestInvalidArguments(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, o := f.host("web-1", 0)
		log := f.srv.Observe()
		var c counter
		for _, occurrence := range []string{"", "a\nb", "\xff", strings.Repeat("x", 1025)} {
			require.ErrorIs(f, o.Do(f.Context(), occurrence, c.run), recipes.ErrInvalidArgument)
		}
		require.ErrorIs(f, o.Do(f.Context(), tick, nil), recipes.ErrInvalidArgument)
		require.ErrorIs(f, o.DoWithin(f.Context(), 0, "", c.run), recipes.ErrInvalidArgument)
		for _, err := range []error{
			newError(nil, jobs), newError(client, "jobs"), newError(client, "/lock-0000000000"),
			newError(client, jobs, nil), newError(client, jobs, once.WithName("")), newError(client, jobs, once.WithID(strings.Repeat("x", 64<<10+1))),
		} {
			require.ErrorIs(f, err, recipes.ErrInvalidArgument)
		}
		require.Zero(f, log.Count(zktest.OpAny))
		require.NoError(f, o.Do(f.Context(), strings.Repeat("x", 1024), c.run))
		require.Empty(f, f.last(o).Failure)
		require.NoError(f, o.Do(f.Context(), "z", func(ctx context.Context, _ *recipes.Lease) error {
			require.ErrorIs(f, o.Do(ctx, "zz", c.run), recipes.ErrInvalidArgument, "it would wait for itself")
			return nil
		}))
		require.EqualValues(f, 1, c.calls.Load())
	})
}

func newError(client *recipes.Client, path string, opts ...once.Option) error {
	_, err := once.New(client, path, opts...)
	return err
}

// beforeTheStart calls strike once, between the holder's look at the record and the start.
func (f *fixture) beforeTheStart(strike func()) {
	isStruck := false
	f.srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == zktest.OpMulti && !isStruck {
			isStruck = true
			strike()
		}
		return zktest.Fault{}
	})
}

// The lock is lost between the decision to run and the start. The server refuses the start, because the lock's znode is
// deleted.
func TestStartNeedsTheLock(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, o := f.host("web-1", 0)
		f.beforeTheStart(func() {
			for _, name := range f.srv.Children(jobs) {
				if name != "last" { // the znode of the lock
					f.srv.Delete(jobs + "/" + name)
				}
			}
		})
		var c counter
		err := o.Do(f.Context(), tick, c.run)
		require.ErrorIs(f, err, recipes.ErrNodeDeleted)
		require.Zero(f, c.calls.Load())
		require.Zero(f, f.last(o))
		require.NoError(f, o.Do(f.Context(), tick, c.run))
	})
}

// Another host's start precedes ours, after the decision to run. The server refuses ours, and Do reads the record
// again.
func TestStartNeedsTheRecordThatWasRead(t *testing.T) {
	for other, want := range map[string]error{"2026-11-26T04:00": once.ErrSuperseded, tick: once.ErrDone, "2026-11-26T02:00": nil} {
		inBubble(t, func(f *fixture) {
			_, o := f.host("web-1", 0)
			f.beforeTheStart(func() { f.srv.Put(record, fmt.Appendf(nil, `{"occurrence":%q,"id":"web-2","token":7}`, other)) })
			var c counter
			err := o.Do(f.Context(), tick, c.run)
			require.ErrorIs(f, err, want)
			if want != nil {
				require.Zero(f, c.calls.Load())
				require.Equal(f, "web-2", f.last(o).ID)
			}
		})
	}
}

// The record is deleted while Do holds the lock: another host may have run the occurrence before that, so Do does not run it.
// The next call does.
func TestRecordIsDeletedBeforeTheStart(t *testing.T) {
	inBubble(t, func(f *fixture) {
		_, o := f.host("web-1", 0)
		f.beforeTheStart(func() { f.srv.Delete(record) })
		var c counter
		require.ErrorContains(f, o.Do(f.Context(), tick, c.run), "unknown whether the occurrence ran")
		require.Zero(f, c.calls.Load())
		require.NoError(f, o.Do(f.Context(), tick, c.run))
		require.EqualValues(f, 1, c.calls.Load())
		require.True(f, f.last(o).Finished)
	})
}
