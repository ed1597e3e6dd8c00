package latch_test

import (
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// broken are the ways in which a listener ends without doing its work.
var broken = map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit}

// A leader whose work has panicked does nothing: its term ends, the next one leads, and it
// stands again after a pause.
func TestPanicInIsLeaderEndsTheTerm(t *testing.T) {
	for name, trouble := range broken {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j journal
				var once sync.Once
				l := enter(t, testclient.Connect(t, srv), latch.WithID("a"), latch.WithListener(latch.Listener{
					IsLeader:  func(*recipes.Lease) { once.Do(func() { pause(time.Minute); trouble() }) },
					NotLeader: func() { j.add("a ends") },
				}))
				term := await(t, l)
				successor := enter(t, testclient.Connect(t, srv), latch.WithID("b"))
				<-successor.Decided()
				pass(time.Minute)
				require.ErrorIs(t, ended(t, term), recipes.ErrReleased)
				require.Equal(t, []string{"a ends"}, j.read())
				require.True(t, successor.HasLeadership())
				pass(time.Minute)
				require.Len(t, srv.Children(election), 2, "it stands again")
				require.NoError(t, successor.Close())
				await(t, l)
			})
		})
	}
}

// A listener that panics at once does not make the latch run wild.
func TestPanicsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var terms journal
		enter(t, testclient.Connect(t, srv), latch.WithListener(latch.Listener{
			IsLeader: func(*recipes.Lease) { terms.add("term"); panic("boom") },
		}))
		pass(time.Hour)
		require.InDelta(t, 120, len(terms.read()), 60)
	})
}

// A panic is reported by the handler, the log and Err, until the latch is back in the queue.
func TestPanicIsTold(t *testing.T) {
	for name, trouble := range broken {
		for _, where := range []string{"IsLeader", "NotLeader"} {
			t.Run(name+" in "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { requirePanicReported(t, name, where, trouble) })
			})
		}
	}
}

// requirePanicReported has a listener call trouble in one of its functions.
func requirePanicReported(t *testing.T, name, where string, trouble func()) {
	t.Helper()
	srv := zktest.NewServer(t)
	var log logBuffer
	errs := make(chan error, 100)
	client := testclient.Connect(t, srv, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	var once sync.Once
	working := latch.Listener{IsLeader: func(*recipes.Lease) { once.Do(trouble) }}
	if where == "NotLeader" {
		working = latch.Listener{NotLeader: func() { once.Do(trouble) }}
	}
	l := enter(t, client, watch(errs), latch.WithListener(working))
	pass(tick)
	if where == "NotLeader" {
		require.NoError(t, await(t, l).Release())
	}
	told := taken(errs)
	require.Len(t, told, 1)
	require.ErrorContains(t, told[0], "latch: "+where+" "+election+": ")
	require.Equal(t, name == "panic", strings.Contains(told[0].Error(), "boom"))
	require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
	panicked, ok := errors.AsType[*recipes.PanicError](told[0])
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
	pass(time.Minute)
	require.True(t, l.HasLeadership())
	require.NoError(t, l.Err())
}

// The latch may be closed by its error handler, which is no reason to wait for itself.
func TestCloseInsideTheErrorHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var l *latch.LeaderLatch
		closed := make(chan error, 1)
		l = create(t, testclient.Connect(t, srv), latch.WithErrorHandler(func(error) {
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
		require.Empty(t, srv.Children(election))
	})
}
