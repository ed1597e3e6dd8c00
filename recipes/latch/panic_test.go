package latch_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A leader whose work panicked does nothing, so its term ends, the next candidate leads, and it queues again after a
// pause.
func TestPanicInIsLeaderEndsTheTerm(t *testing.T) {
	for name, trouble := range elections.Broken() {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j elections.Journal
				var once sync.Once
				l := elections.StartLatch(t, testclient.Connect(t, srv), latch.WithID("a"), latch.WithListener(latch.Listener{
					IsLeader:  func(*recipes.Lease) { once.Do(func() { bubble.Pause(time.Minute); trouble() }) },
					NotLeader: func() { j.Add("a ends") },
				}))
				term := elections.Await(t, l)
				successor := elections.StartLatch(t, testclient.Connect(t, srv), latch.WithID("b"))
				<-successor.Decided()
				bubble.Pass(time.Minute)
				require.ErrorIs(t, bubble.Cause(t, term), recipes.ErrReleased)
				require.Equal(t, []string{"a ends"}, j.Read())
				require.True(t, successor.HasLeadership())
				bubble.Pass(time.Minute)
				require.Len(t, srv.Children(elections.Path), 2, "it stands again")
				require.NoError(t, successor.Close())
				elections.Await(t, l)
			})
		})
	}
}

// A listener that panics at once does not make the latch run wild.
func TestPanicsArePaced(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var terms elections.Journal
		elections.StartLatch(t, testclient.Connect(t, srv), latch.WithListener(latch.Listener{
			IsLeader: func(*recipes.Lease) { terms.Add("term"); panic("boom") },
		}))
		bubble.Pass(time.Hour)
		require.InDelta(t, 120, len(terms.Read()), 60)
	})
}

// A panic is reported by the handler, the log and Err, until the latch is back in the queue.
func TestPanicIsTold(t *testing.T) {
	for name, trouble := range elections.Broken() {
		for _, where := range []string{"IsLeader", "NotLeader"} {
			t.Run(name+" in "+where, func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T) { requirePanicReported(t, name, where, trouble) })
			})
		}
	}
}

// requirePanicReported calls trouble in one of the listener's functions.
func requirePanicReported(t *testing.T, name, where string, trouble func()) {
	t.Helper()
	srv := zktest.NewServer(t)
	var log testkit.Log
	errs := make(chan error, 100)
	client := testclient.Connect(t, srv, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	var once sync.Once
	working := latch.Listener{IsLeader: func(*recipes.Lease) { once.Do(trouble) }}
	if where == "NotLeader" {
		working = latch.Listener{NotLeader: func() { once.Do(trouble) }}
	}
	l := elections.StartLatch(t, client, elections.ErrorsTo(errs), latch.WithListener(working))
	bubble.Pass(elections.Tick)
	if where == "NotLeader" {
		require.NoError(t, elections.Await(t, l).Release())
	}
	told := elections.Taken(errs)
	require.Len(t, told, 1)
	require.ErrorContains(t, told[0], "latch: "+where+" "+elections.Path+": ")
	require.Equal(t, name == "panic", strings.Contains(told[0].Error(), "boom"))
	require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
	panicked, ok := zkutil.AsType[*recipes.PanicError](told[0])
	require.Equal(t, name == "panic", ok)
	require.Equal(t, ok, strings.Contains(log.String(), " stack="))
	if ok {
		require.Contains(t, string(panicked.Stack), "requirePanicReported")
		require.NotContains(t, told[0].Error(), "goroutine")
	}
	if where == "IsLeader" {
		require.Equal(t, told[0], l.Err())
		require.Empty(t, l.Path())
	}
	bubble.Pass(time.Minute)
	require.True(t, l.HasLeadership())
	require.NoError(t, l.Err())
}

// The latch may be closed by its error handler, which is no reason to wait for itself.
func TestCloseInsideTheErrorHandler(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var l *latch.LeaderLatch
		closed := make(chan error, 1)
		l = elections.NewLatch(t, testclient.Connect(t, srv), latch.WithErrorHandler(func(error) {
			start := time.Now()
			err := l.Close()
			if time.Since(start) > 0 {
				t.Error("it has waited")
			}
			closed <- err
		}),
			latch.WithListener(latch.Listener{IsLeader: func(*recipes.Lease) { panic("boom") }}))
		require.NoError(t, l.Start())
		require.NoError(t, <-closed)
		require.NoError(t, l.Close())
		require.Empty(t, srv.Children(elections.Path))
	})
}

// typedNilError is an error whose methods panic for a nil pointer, with which a listener panics by mistake.
type typedNilError struct{ err error }

func (e *typedNilError) Error() string { return e.err.Error() }
func (e *typedNilError) Unwrap() error { return e.err }

// A panic with an error whose methods panic, too, is reported like any other, and ends no goroutine of the latch.
func TestPanicWithAnErrorThatPanics(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, told := zktest.NewServer(t), make(chan error, 10)
		l := elections.StartLatch(t, testclient.ConnectSettled(t, srv), elections.ErrorsTo(told), latch.WithListener(latch.Listener{
			IsLeader: func(*recipes.Lease) {
				var err error = (*typedNilError)(nil)
				panic(err)
			},
		}))
		for range 2 {
			var panicked *recipes.PanicError
			require.ErrorAs(t, testkit.Receive(t, told, "the panic"), &panicked)
			require.Contains(t, string(panicked.Stack), "TestPanicWithAnErrorThatPanics")
		}
		require.NoError(t, l.Close())
		require.ErrorIs(t, l.Err(), recipes.ErrClosed)
	})
}

// asking is an error whose method Is asks the latch.
type asking struct{ l func() *latch.LeaderLatch }

func (asking) Error() string   { return "asking" }
func (e asking) Is(error) bool { return e.l().Err() == nil }

// The methods of a user's error may use the latch: they are called under no lock.
func TestPanicWithAnErrorThatAsksTheLatch(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, told := zktest.NewServer(t), make(chan error, 10)
		var l *latch.LeaderLatch
		l = elections.NewLatch(t, testclient.ConnectSettled(t, srv), elections.ErrorsTo(told), latch.WithListener(latch.Listener{
			IsLeader: func(*recipes.Lease) { panic(asking{func() *latch.LeaderLatch { return l }}) },
		}))
		require.NoError(t, l.Start())
		require.Error(t, testkit.Receive(t, told, "the panic"))
		bubble.Pass(time.Minute)
		require.NoError(t, l.Close())
	})
}
