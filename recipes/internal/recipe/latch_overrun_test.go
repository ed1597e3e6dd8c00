package recipe_test

import (
	"context"
	"errors"
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
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// events are the messages of a log, each with its cause.
func events(log *testkit.Log) (events []string) {
	synctest.Wait()
	for _, line := range log.Take() {
		_, message, _ := strings.Cut(line, "msg=")
		message, rest, _ := strings.Cut(message, " path=")
		_, cause, hasCause := strings.Cut(rest, "cause=")
		if event := strings.Trim(message, `"`); hasCause {
			events = append(events, event+": "+strings.Trim(cause, `"`))
		} else {
			events = append(events, event)
		}
	}
	return events
}

// A listener that does not return keeps the znode, so no candidate leads. The latch reports the overrun of either function
// of the listener after a second and then every minute, to the log, the handler and Err. It steps down only after the
// listener returns.
func TestListenerThatGoesOnAfterItsTerm(t *testing.T) {
	for name, listener := range map[string]func(done <-chan struct{}) latch.Listener{
		"IsLeader": func(done <-chan struct{}) latch.Listener {
			return latch.Listener{IsLeader: func(*recipes.Lease) { <-done }}
		},
		"NotLeader": func(done <-chan struct{}) latch.Listener { return latch.Listener{NotLeader: func() { <-done }} },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv, log := zktest.NewServer(t), &testkit.Log{}
				client := testclient.ConnectSettled(t, srv, recipes.WithLogger(log.Logger(slog.LevelInfo)))
				done := make(chan struct{})
				var told []error
				l, term := elections.Lead(t, client, latch.WithListener(listener(done)), latch.WithErrorHandler(func(err error) { told = append(told, err) }))
				successor := elections.StartLatch(t, testclient.ConnectSettled(t, srv))
				bubble.Pass(time.Minute)
				log.Take()
				require.NoError(t, term.Release())
				bubble.Pass(999 * time.Millisecond)
				require.NoError(t, l.Err())
				require.Empty(t, events(log))
				bubble.Pass(time.Millisecond)
				require.EqualError(t, l.Err(), "latch: lead "+elections.Path+": work still running after its term ended, for 1s")
				bubble.Pass(2 * time.Minute)
				require.Equal(t, []string{
					"work still running after its term ended: released", "work still running after its term ended: released", "work still running after its term ended: released",
				}, events(log))
				require.Len(t, told, 3)
				require.ErrorIs(t, told[2], recipes.ErrWorkGoesOn)
				require.ErrorContains(t, l.Err(), "for 2m1s")
				require.False(t, successor.HasLeadership())

				close(done)
				elections.Await(t, successor)
				bubble.Pass(time.Second)
				require.NoError(t, l.Err())
				require.Equal(t, []string{"leader latch recovered", "stepped down: released", "in the election"}, events(log))
				require.Len(t, told, 3)
			})
		})
	}
}

// Err of a closed latch also says that a listener has still to return.
func TestErrOfAClosedLatchNamesRunningWork(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, log := zktest.NewServer(t), &testkit.Log{}
		client := testclient.ConnectSettled(t, srv, recipes.WithLogger(log.Logger(slog.LevelInfo)))
		done := make(chan struct{})
		l, _ := elections.Lead(t, client, latch.WithListener(latch.Listener{IsLeader: func(*recipes.Lease) { <-done }}), latch.WithStepDownGrace(elections.Grace))
		bubble.Pass(time.Minute)
		log.Take()
		require.ErrorIs(t, l.Close(), recipes.ErrStepDownGrace)
		require.ErrorIs(t, l.Err(), recipes.ErrClosed)
		require.ErrorIs(t, l.Err(), recipes.ErrWorkGoesOn)
		require.NotEmpty(t, l.Path())
		close(done)
		require.NoError(t, l.Close())
		require.ErrorIs(t, l.Err(), recipes.ErrClosed)
		require.NotErrorIs(t, l.Err(), recipes.ErrWorkGoesOn)
		require.Empty(t, l.Path())
		require.Equal(t, []string{
			"work still running after its term ended: released", "leader latch recovered", "stepped down: released", "left the election: released",
		}, events(log))
	})
}

// A panic of another listener remains the reported error after the slow one returns.
func TestPanicOutlastsRunningWork(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, log := zktest.NewServer(t), &testkit.Log{}
		client := testclient.ConnectSettled(t, srv, recipes.WithLogger(log.Logger(slog.LevelInfo)))
		l := elections.NewLatch(t, client)
		l.AddListener(latch.Listener{IsLeader: func(*recipes.Lease) { bubble.Pause(3 * time.Second) }})
		l.AddListener(latch.Listener{IsLeader: func(term *recipes.Lease) {
			<-term.Context().Done()
			bubble.Pause(2 * time.Second)
			panic(errors.New("boom"))
		}})
		require.NoError(t, l.Start())
		bubble.Pass(100 * time.Millisecond)
		_, ok := l.Leadership()
		require.True(t, ok)
		term, _ := l.Leadership()
		require.NoError(t, term.Release())
		bubble.Pass(1500 * time.Millisecond)
		require.ErrorIs(t, l.Err(), recipes.ErrWorkGoesOn)
		bubble.Pass(700 * time.Millisecond)
		require.ErrorContains(t, l.Err(), "boom")
		bubble.Pass(900 * time.Millisecond)
		require.ErrorContains(t, l.Err(), "boom")
	})
}

// A latch that leaves while it waits logs that once.
func TestLeavingTheElectionIsLogged(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, log := zktest.NewServer(t), &testkit.Log{}
		client := testclient.ConnectSettled(t, srv, recipes.WithLogger(log.Logger(slog.LevelInfo)))
		elections.Lead(t, testclient.ConnectSettled(t, srv))
		log.Take()
		l := elections.StartLatch(t, client)
		<-l.Decided()
		synctest.Wait() // for the record
		require.NoError(t, l.Close())
		require.Equal(t, []string{"in the election", "left the election: released"}, events(log))
		require.Empty(t, l.Path())
		require.NoError(t, l.Close())
		require.NoError(t, elections.NewLatch(t, client).Close(), "never started")
		require.Empty(t, events(log))
	})
}

// A term ended by a listener's panic has failed.
func TestCauseOfATermWhoseListenerHasFailed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, log := zktest.NewServer(t), &testkit.Log{}
		var causes []error
		trace := &recipes.Trace{LeaseEnd: func(_ context.Context, e recipes.LeaseEnd) { causes = append(causes, e.Cause) }}
		client := testclient.ConnectSettled(t, srv, recipes.WithLogger(log.Logger(slog.LevelInfo)), recipes.WithTrace(trace))
		bubble.Pass(time.Second)
		log.Take()
		var failed *recipes.Lease
		elections.StartLatch(t, client, latch.WithListener(latch.Listener{IsLeader: func(term *recipes.Lease) {
			if failed == nil {
				failed = term
				panic("boom")
			}
		}}))
		bubble.Pass(time.Minute)
		require.ErrorIs(t, context.Cause(failed.Context()), recipes.ErrReleased)
		require.Equal(t, []error{recipes.ErrFailed}, causes)
		require.NoError(t, client.Close())
		require.Equal(t, []error{recipes.ErrFailed, recipes.ErrClosed}, causes)
		require.Equal(t, []string{
			"leading", "leader latch failed", "stepped down: failed", "leading", "leader latch recovered",
			"stepped down: closed", "left the election: closed",
		}, events(log))
	})
}
