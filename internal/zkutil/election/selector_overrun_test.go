package election_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// timedLog is a log whose lines are preceded by the time since it was made.
type timedLog struct {
	testkit.Log

	began time.Time
}

func (l *timedLog) Write(line []byte) (int, error) {
	_, err := fmt.Fprintf(&l.Log, "%v ", time.Since(l.began))
	if err == nil {
		_, err = l.Log.Write(line)
	}
	return len(line), err
}

func (l *timedLog) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "token" || a.Key == "last_proof" {
			return slog.Attr{}
		}
		return a
	}}))
}

// A function that does not return keeps its znode, so no candidate leads. That is reported after a second and then every
// minute. The selector steps down only after the function returns.
func TestFunctionThatGoesOnAfterItsTerm(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(s *selector.LeaderSelector, client *recipes.Client)
		cause string
	}{
		"InterruptLeadership": {func(s *selector.LeaderSelector, _ *recipes.Client) { s.InterruptLeadership() }, "released"},
		"Close": {func(s *selector.LeaderSelector, _ *recipes.Client) {
			go func() { _ = s.Close() }() // returns after the grace
		}, "released"},
		"Client.Close": {func(_ *selector.LeaderSelector, client *recipes.Client) {
			go func() { _ = client.Close() }() // returns after the operation timeout
		}, "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv, log := zktest.NewServer(t), &timedLog{}
				client := testclient.ConnectSettled(t, srv, recipes.WithLogger(log.logger(slog.LevelInfo)), recipes.WithID("web-1"))
				done := make(chan struct{})
				var told []error
				var toldAt []time.Duration
				s := elections.StartSelector(t, client, func(context.Context, *recipes.Lease) error { <-done; return nil },
					selector.WithErrorHandler(func(err error) {
						told, toldAt = append(told, err), append(toldAt, time.Since(log.began))
					}))
				successor := elections.StartSelector(t, testclient.ConnectSettled(t, srv), elections.Idle)
				bubble.Pass(time.Minute)
				log.Take()
				log.began = time.Now()
				c.end(s, client)
				bubble.Pass(2*time.Minute + 30*time.Second)
				require.False(t, successor.HasLeadership())
				line := func(at, overrun string) string {
					return at + ` level=WARN msg="work still running after its term ended" path=` + elections.Path + ` id=web-1 for=` + overrun + ` cause=` + c.cause
				}
				lines := without(log.Take(), "msg=closed")
				require.Equal(t, []string{line("1s", "1s"), line("1m1s", "1m1s"), line("2m1s", "2m1s")}, lines)
				require.Len(t, told, 3)
				for i, overrun := range []string{"1s", "1m1s", "2m1s"} {
					require.ErrorIs(t, told[i], recipes.ErrWorkGoesOn)
					require.EqualError(t, told[i], "selector: lead "+elections.Path+": work still running after its term ended, for "+overrun)
				}
				require.Equal(t, []time.Duration{time.Second, time.Minute + time.Second, 2*time.Minute + time.Second}, toldAt)

				close(done)
				bubble.Pass(time.Second)
				require.True(t, successor.HasLeadership())
				lines = log.Take()
				require.GreaterOrEqual(t, len(lines), 2)
				require.Regexp(t, `^2m30s level=INFO msg="stepped down" path=`+elections.Path+` id=web-1 led=1m0\.03s cause=`+c.cause+`$`, lines[0])
				require.Contains(t, lines[1], `2m30s level=INFO msg="left the election"`)
				require.Len(t, told, 3)
			})
		})
	}
}

func without(lines []string, part string) (others []string) {
	for _, line := range lines {
		if !strings.Contains(line, part) {
			others = append(others, line)
		}
	}
	return others
}

// Work that continues after a loss is reported, too, because a successor may lead beside it. There is no step-down.
func TestFunctionThatContinuesAfterALoss(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, log := zktest.NewServer(t), &timedLog{}
		client := testclient.ConnectSettled(t, srv, recipes.WithLogger(log.logger(slog.LevelInfo)), recipes.WithID("web-1"))
		done := make(chan struct{})
		s := elections.StartSelector(t, client, func(context.Context, *recipes.Lease) error { <-done; return nil })
		bubble.Pass(time.Minute)
		log.Take()
		log.began = time.Now()
		require.NotEmpty(t, s.Path())
		srv.Delete(s.Path())
		bubble.Pass(90 * time.Second)
		require.Empty(t, s.Path(), "the znode is gone")
		lines := log.Take()
		require.Len(t, lines, 3)
		require.Contains(t, lines[0], `level=WARN msg="lease lost"`)
		require.Contains(t, lines[1], `1s level=WARN msg="work still running after its term ended" path=`+elections.Path+` id=web-1 for=1s cause="znode deleted by another client"`)
		require.Contains(t, lines[2], `for=1m1s`)
		close(done)
		bubble.Pass(time.Second)
		require.Equal(t, []string{
			`1m30s level=INFO msg="left the election" path=` + elections.Path + ` id=web-1 cause="znode deleted by another client"`,
		}, log.Take())
	})
}

// A function that returns within a second is not reported, and neither is one whose term continues.
func TestFunctionThatReturnsInTimeIsNotReported(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, log := zktest.NewServer(t), &timedLog{}
		client := testclient.ConnectSettled(t, srv, recipes.WithLogger(log.logger(slog.LevelWarn)))
		s := elections.StartSelector(t, client, func(ctx context.Context, _ *recipes.Lease) error {
			<-ctx.Done()
			bubble.Pause(time.Second - time.Millisecond)
			return nil
		}, selector.WithAutoRequeue())
		for range 5 {
			bubble.Pass(10 * time.Minute)
			s.InterruptLeadership()
		}
		bubble.Pass(time.Minute)
		require.Empty(t, log.Take())
	})
}

// The path is known as long as the znode may exist. An expired session has none.
func TestPathIsEmptyOnceTheSessionHasExpired(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.ConnectSettled(t, srv)
		done := make(chan struct{})
		s := elections.StartSelector(t, client, func(context.Context, *recipes.Lease) error { <-done; return nil })
		before := s.Path()
		require.NotEmpty(t, before)
		s.InterruptLeadership()
		bubble.Pass(time.Second)
		require.Equal(t, before, s.Path(), "it stays until the function returns")
		srv.Expire(elections.SessionOf(client))
		bubble.Pass(time.Minute)
		require.Empty(t, s.Path())
		close(done)
		bubble.Pass(time.Second)
		require.Empty(t, s.Path())
	})
}

// A candidate that leaves an election logs that once, with the reason.
func TestLeavingTheElectionIsLogged(t *testing.T) {
	fail := func(context.Context, *recipes.Lease) error { return elections.ErrWork }
	succeed := func(context.Context, *recipes.Lease) error { return nil }
	cancelled := func(after time.Duration) func(t *testing.T, s *selector.LeaderSelector) {
		return func(t *testing.T, s *selector.LeaderSelector) {
			t.Helper()
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(after, func() { cancel(elections.ErrShutdown) })
			require.NoError(t, s.Run(ctx))
		}
	}
	started := func(end func(*selector.LeaderSelector)) func(t *testing.T, s *selector.LeaderSelector) {
		return func(t *testing.T, s *selector.LeaderSelector) {
			t.Helper()
			require.NoError(t, s.Start())
			bubble.Pass(time.Minute)
			end(s)
			require.NoError(t, s.Close())
		}
	}
	nothing := func(*selector.LeaderSelector) {}
	for name, c := range map[string]struct {
		hasLeader bool
		take      selector.TakeLeadership
		run       func(t *testing.T, s *selector.LeaderSelector)
		opts      []selector.Option
		cause     string
		times     int
	}{
		"Run, cancelled while it waits": {true, elections.Idle, cancelled(time.Minute), nil, "SIGTERM", 1},
		"Run, cancelled while it leads": {false, elections.Idle, cancelled(time.Minute), nil, "SIGTERM", 1},
		"Run, cancelled in a pause":     {false, fail, cancelled(time.Minute), []selector.Option{selector.WithAutoRequeue()}, "SIGTERM", 1},
		"Run, cancelled at once":        {false, elections.Idle, cancelled(0), nil, "SIGTERM", 1},
		"Close while it waits":          {true, elections.Idle, started(nothing), nil, "released", 1},
		"the only term is over":         {false, succeed, started(nothing), nil, `"no requeue"`, 1},
		"the only term has failed":      {false, fail, started(nothing), nil, "failed", 1},
		"InterruptLeadership, no requeue": {false, elections.Idle, started(func(s *selector.LeaderSelector) {
			s.InterruptLeadership()
			bubble.Pass(time.Second)
		}), nil, `"no requeue"`, 1},
		"each time that it has joined": {false, succeed, started(func(s *selector.LeaderSelector) {
			require.True(t, s.Requeue())
			bubble.Pass(time.Minute)
		}), nil, `"no requeue"`, 2},
		"too many failures": {
			false, fail, started(nothing),
			[]selector.Option{selector.WithAutoRequeue(), selector.WithRequeueBackoff(recipes.RetryPolicy{MaxAttempts: 2})},
			"failed", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv, log := zktest.NewServer(t), &timedLog{}
				if c.hasLeader {
					elections.StartSelector(t, testclient.ConnectSettled(t, srv), elections.Idle)
				}
				client := testclient.ConnectSettled(t, srv, recipes.WithLogger(log.logger(slog.LevelInfo)), recipes.WithID("web-1"))
				s := elections.NewSelector(t, client, c.take, append(c.opts, selector.WithErrorHandler(elections.Discard))...)
				c.run(t, s)
				synctest.Wait()
				var left []string
				for _, line := range log.Take() {
					if strings.Contains(line, `level=INFO msg="left the election"`) {
						left = append(left, line)
					}
				}
				require.Len(t, left, c.times)
				for _, line := range left {
					require.Regexp(t, ` path=`+elections.Path+` id=web-1 cause=`+c.cause+`$`, line)
				}
				require.Empty(t, s.Path())
			})
		})
	}
}

// A term that ends because its function failed is logged and traced as failed. A term that ended before its function
// failed was released.
func TestCauseOfATermWhoseFunctionHasFailed(t *testing.T) {
	for name, c := range map[string]struct {
		take  selector.TakeLeadership
		cause error
		text  string
	}{
		"error":   {func(context.Context, *recipes.Lease) error { bubble.Pause(time.Second); return elections.ErrWork }, recipes.ErrFailed, "failed"},
		"panic":   {func(context.Context, *recipes.Lease) error { bubble.Pause(time.Second); panic("boom") }, recipes.ErrFailed, "failed"},
		"success": {func(context.Context, *recipes.Lease) error { bubble.Pause(time.Second); return nil }, nil, "released"},
		"a failure after the end": {func(_ context.Context, term *recipes.Lease) error {
			_ = term.Release()
			return elections.ErrWork
		}, nil, "released"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv, log := zktest.NewServer(t), &timedLog{}
				var ends []recipes.LeaseEnd
				trace := &recipes.Trace{LeaseEnd: func(_ context.Context, e recipes.LeaseEnd) { ends = append(ends, e) }}
				client := testclient.ConnectSettled(t, srv, recipes.WithLogger(log.logger(slog.LevelInfo)), recipes.WithTrace(trace))
				var term *recipes.Lease
				elections.StartSelector(t, client, func(ctx context.Context, l *recipes.Lease) error { term = l; return c.take(ctx, l) },
					selector.WithErrorHandler(elections.Discard))
				bubble.Pass(time.Minute)
				require.Len(t, ends, 1)
				require.Equal(t, c.cause, ends[0].Cause)
				require.ErrorIs(t, context.Cause(term.Context()), recipes.ErrReleased)
				var stepped []string
				for _, line := range log.Take() {
					if strings.Contains(line, "stepped down") {
						stepped = append(stepped, line)
					}
				}
				require.Len(t, stepped, 1)
				require.Contains(t, stepped[0], "cause="+c.text)
			})
		})
	}
}
