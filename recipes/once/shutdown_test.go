package once_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// A rolling restart in the middle of a run: the host waits for its function, and records the end before another host can start.
// So no two runs overlap, and an occurrence whose function returns nil does not run again.
func TestRollingRestartDuringARun(t *testing.T) {
	for name, c := range map[string]struct {
		opts    []once.Option
		result  error
		fault   func(f *fixture) // during the shutdown
		isAgain bool             // the next host runs the occurrence
	}{
		"at most once":                    {},
		"at most once, failure":           {result: errOfWork},
		"with retry":                      {opts: []once.Option{once.WithRetry()}},
		"with retry, failure":             {opts: []once.Option{once.WithRetry()}, result: errOfWork, isAgain: true},
		"with retry, lost answer":         {opts: []once.Option{once.WithRetry()}, fault: func(f *fixture) { f.srv.DropReply(zktest.OpMulti, 1) }},
		"with retry, lost request":        {opts: []once.Option{once.WithRetry()}, fault: func(f *fixture) { f.srv.DropRequest(zktest.OpMulti, 1) }},
		"with retry, outage at the end":   {opts: []once.Option{once.WithRetry()}, fault: func(f *fixture) { f.outage(2500*time.Millisecond, 2*time.Second) }},
		"with retry, outage of all of it": {opts: []once.Option{once.WithRetry()}, fault: func(f *fixture) { f.outage(0, 4*time.Second) }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				client, first := f.host("web-1", 0, c.opts...)
				_, second := f.host("web-2", 1, c.opts...)
				var endedAt, nextAt time.Time
				done, next := make(chan error, 1), make(chan error, 1)
				go func() { // joined below
					done <- first.Do(f.Context(), tick, func(ctx context.Context, _ *recipes.Lease) error {
						<-ctx.Done()
						pause(3 * time.Second)
						endedAt = time.Now()
						return c.result
					})
				}()
				pass(10 * time.Second)
				go func() { // joined below
					next <- second.Do(f.Context(), tick, func(context.Context, *recipes.Lease) error { nextAt = time.Now(); return nil })
				}()
				pass(time.Second)
				if c.fault != nil {
					c.fault(f)
				}
				start := time.Now()
				require.NoError(f, client.Shutdown(f.Context()))
				require.GreaterOrEqual(f, time.Since(start), 3*time.Second)
				err := <-done
				require.ErrorIs(f, err, recipes.ErrClosed)
				require.NotErrorIs(f, err, once.ErrNotRecorded)
				if c.isAgain {
					require.NoError(f, <-next)
					require.False(f, nextAt.Before(endedAt), "two runs at a time")
					return
				}
				require.ErrorIs(f, <-next, once.ErrDone)
				require.Zero(f, nextAt, "a second run")
				last := f.last(second)
				require.Equal(f, c.result == nil, last.Finished)
				require.Equal(f, endedAt.UnixMilli(), last.FinishedAt.UnixMilli())
			})
		})
	}
}

// outage stops the first server after a time, for a time.
func (f *fixture) outage(after, length time.Duration) {
	time.AfterFunc(after, func() { f.srv.Stop(f.srv.Addr()) })
	time.AfterFunc(after+length, func() { require.NoError(f, f.srv.Restart(f.srv.Addr())) })
}

// A shutdown while the answer to the start is outstanding: the function is not called, and the lock is kept until the start is
// undone, so that the next holder does not find the start.
func TestShutdownDuringAStart(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, o := f.host("web-1", 0)
		f.beforeTheStart(func() {
			f.srv.DropReply(zktest.OpMulti, 1)
			f.refuseTakingBack(3)
			go func() { _ = client.Shutdown(context.Background()) }() // joined by the second call below
			pause(time.Millisecond)
		})
		var leftBehind []byte
		f.srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete {
				leftBehind, _, _ = f.srv.Get(record)
			}
			return zktest.Fault{}
		})
		var c counter
		require.ErrorIs(f, o.Do(f.Context(), tick, c.run), recipes.ErrClosed)
		require.NoError(f, client.Shutdown(f.Context()))
		require.Zero(f, c.calls.Load())
		require.Empty(f, leftBehind, "the record when the lock was given up")
		data, _, _ := f.srv.Get(record)
		require.Empty(f, data)
	})
}

// A run that hangs keeps all hosts from the next occurrence. Its host logs the run when the other hosts log their waits, even
// before its context ends.
func TestRunThatHangsIsInItsOwnLog(t *testing.T) {
	inBubble(t, func(f *fixture) {
		log := &testkit.Log{}
		client := zkclient.ConnectTo(f, f.srv, f.srv.Addrs(), recipes.WithLogger(log.Logger(slog.LevelWarn)))
		o, err := once.New(client, jobs, once.WithID("web-1"))
		require.NoError(f, err)
		require.NoError(f, o.Do(f.Context(), tick, func(context.Context, *recipes.Lease) error {
			pass(time.Minute - time.Millisecond)
			require.Empty(f, log.Take())
			pass(time.Hour)
			lines := log.Take()
			require.Len(f, lines, 1)
			require.Regexp(f, `level=WARN msg="slow hold" path=/jobs/report token=\d+ id=web-1 held=1m0s`, lines[0])
			return nil
		}))
	})
}

// Close waits an operation timeout for a function, and as long again for the record of its end, because an outage that began before the function
// returned may keep the host from writing it.
func TestCloseWaitsForTheRecordOfARun(t *testing.T) {
	for name, c := range map[string]struct {
		windDown, outage time.Duration // both from the call of Close on
		isRecorded       bool
	}{
		"function takes most of the grace": {windDown: 8 * time.Second, outage: 12 * time.Second, isRecorded: true},
		"outage of the operation timeout":  {windDown: 0, outage: 9 * time.Second, isRecorded: true},
		"outage of a minute":               {windDown: 0, outage: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				client := zkclient.ConnectTo(f, f.srv, f.srv.Addrs()[:1], recipes.WithSessionTimeout(time.Minute))
				o, err := once.New(client, jobs)
				require.NoError(f, err)
				done := make(chan error, 1)
				go func() { // joined below
					done <- o.Do(f.Context(), tick, func(ctx context.Context, _ *recipes.Lease) error {
						<-ctx.Done()
						pause(c.windDown)
						return nil
					})
				}()
				pass(time.Second)
				f.outage(0, c.outage)
				pass(time.Millisecond)
				start := time.Now()
				require.NoError(f, client.Close())
				require.Less(f, time.Since(start), 25*time.Second)
				err = <-done
				require.ErrorIs(f, err, recipes.ErrClosed)
				require.Equal(f, !c.isRecorded, errors.Is(err, once.ErrNotRecorded), err)
				pass(2 * time.Minute)
				_, second := f.host("web-2", 1)
				require.Equal(f, c.isRecorded, f.last(second).Finished)
			})
		})
	}
}

// The context of Do ends while its start is taken back, and then the client closes. The lock is kept all the same until the start is taken back.
func TestCloseWhileAStartIsTakenBack(t *testing.T) {
	for name, shutdown := range map[string]func(*recipes.Client) error{
		"shutdown": func(c *recipes.Client) error { return c.Shutdown(context.Background()) },
		"close":    (*recipes.Client).Close,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				client, o := f.host("web-1", 0)
				f.refuseTakingBack(3)
				var leftBehind []string
				f.srv.Inject(func(r zktest.Request) zktest.Fault {
					if data, _, _ := f.srv.Get(record); len(data) > 0 && (r.Op == zktest.OpDelete || r.Op == zktest.OpClose) {
						leftBehind = append(leftBehind, string(data))
					}
					return zktest.Fault{}
				})
				f.giveUpStart(client, o)
				require.NoError(f, shutdown(client))
				require.Empty(f, leftBehind, "records when the lock was given up")
				data, _, _ := f.srv.Get(record)
				require.Empty(f, data)
			})
		})
	}
}
