package latch_test

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestListenersAreCalledInOrderOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		var running atomic.Int32
		slow := func(name string) latch.Option {
			call := func(what string) {
				if running.Add(1) > 1 {
					t.Error("two at a time")
				}
				pause(time.Duration(rand.IntN(1000)) * time.Millisecond)
				j.add("%s %s", name, what)
				running.Add(-1)
			}
			return latch.WithListener(latch.Listener{
				IsLeader:  func(*recipes.Lease) { call("leads") },
				NotLeader: func() { call("ends") },
			})
		}
		l, _ := lead(t, connect(t, srv), slow("a"), slow("b"), slow("c"))
		want := []string{"a leads", "b leads", "c leads"}
		for range 20 {
			pass(10 * time.Second)
			require.Equal(t, want, j.read())
			term, leads := l.Leadership()
			require.True(t, leads)
			require.NoError(t, term.Release())
			want = []string{"a ends", "b ends", "c ends", "a leads", "b leads", "c leads"}
		}
	})
}

// However often and fast a term comes and goes, each listener hears of it as a whole
// or not at all.
func TestEachIsLeaderHasItsNotLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var journals [3]journal
		client := connect(t, srv)
		l := create(t, client, latch.WithCloseMode(latch.NotifyLeader))
		for i := range journals {
			slow := journals[i].listener("it")
			l.AddListener(latch.Listener{
				IsLeader:  func(term *recipes.Lease) { slow.IsLeader(term); pause(time.Duration(i) * time.Millisecond) },
				NotLeader: func() { slow.NotLeader(); pause(time.Duration(i) * time.Millisecond) },
			})
		}
		require.NoError(t, l.Start())
		for i := range 300 {
			pass(time.Duration(rand.IntN(4)) * time.Millisecond)
			if term, leads := l.Leadership(); leads {
				switch i % 3 {
				case 0:
					_ = term.Release()
				case 1:
					srv.Delete(term.Path())
				default:
					srv.Expire(sessionOf(client))
				}
			}
		}
		require.NoError(t, l.Close())
		for i := range journals {
			lines := journals[i].read()
			require.NotEmpty(t, lines)
			for n, line := range lines {
				require.Equal(t, []string{"it leads", "it ends"}[n%2], line)
			}
			require.Zero(t, len(lines)%2)
		}
	})
}

func TestPanicInAListenerIsContained(t *testing.T) {
	for name, trouble := range map[string]func(){
		"panic": func() { panic("boom") }, "goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j journal
				var log bytes.Buffer
				client := connect(t, srv, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				l, _ := lead(t, client, latch.WithCloseMode(latch.NotifyLeader),
					latch.WithListener(latch.Listener{
						IsLeader:  func(*recipes.Lease) { trouble() },
						NotLeader: func() { trouble() },
					}), latch.WithListener(j.listener("other")))
				pass(0)
				require.Equal(t, []string{"other leads"}, j.read())
				require.True(t, l.HasLeadership())
				require.NoError(t, l.Close())
				require.Equal(t, []string{"other ends"}, j.read())
				require.NoError(t, client.Close())
				require.Equal(t, name == "panic", bytes.Contains(log.Bytes(), []byte("boom")))
			})
		})
	}
}

func TestListenerAddedWhileLeadingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		l, term := lead(t, connect(t, srv))
		pass(time.Minute)
		l.AddListener(latch.Listener{IsLeader: func(told *recipes.Lease) {
			if told != term {
				t.Error("another term")
			}
			j.add("told")
		}})
		pass(0)
		require.Equal(t, []string{"told"}, j.read())
	})
}

func TestListenersAddedAndRemovedInsideCallbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		l := create(t, connect(t, srv))
		var removeSelf, removeLast func()
		removeSelf = l.AddListener(latch.Listener{
			IsLeader: func(*recipes.Lease) {
				j.add("first leads")
				removeSelf()
				removeLast()
				l.AddListener(j.listener("added"))
			},
			NotLeader: func() { j.add("first ends") },
		})
		l.AddListener(latch.Listener{
			IsLeader: func(*recipes.Lease) { j.add("middle leads") },
			NotLeader: func() {
				j.add("middle ends")
				l.AddListener(j.listener("too late for this term"))
			},
		})
		removeLast = l.AddListener(j.listener("last"))

		require.NoError(t, l.Start())
		term := await(t, l)
		pass(0)
		require.Equal(t, []string{"first leads", "middle leads", "added leads"}, j.read())
		removeLast() // again
		srv.Delete(term.Path())
		pass(time.Second)
		require.Equal(t, []string{
			"middle ends", "added ends",
			"middle leads", "added leads", "too late for this term leads",
		}, j.read())
	})
}

// One listener's IsLeader goes on as long as the term. It is over when the turn of the
// other comes, who never hears of it.
func TestWhatIsOverIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		l, term := lead(t, connect(t, srv),
			latch.WithListener(latch.Listener{IsLeader: func(term *recipes.Lease) { <-term.Context().Done() }}),
			latch.WithListener(j.listener("other")), latch.WithCloseMode(latch.NotifyLeader))
		l.AddListener(j.listener("another"))
		pass(time.Minute)
		srv.Delete(term.Path())
		await(t, l)
		require.NoError(t, l.Close())
		require.Empty(t, j.read())
	})
}

func TestListenerWithoutFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		l, term := lead(t, connect(t, srv), latch.WithListener(latch.Listener{}),
			latch.WithListener(latch.Listener{NotLeader: func() { j.add("ends") }}))
		pass(0)
		srv.Delete(term.Path())
		await(t, l)
		pass(0)
		require.Equal(t, []string{"ends"}, j.read())
	})
}

// A removed listener is not called any more, and a closed latch calls nobody.
func TestRemovedListenersHearNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		l := create(t, connect(t, srv), latch.WithCloseMode(latch.NotifyLeader))
		remove := l.AddListener(j.listener("removed"))
		require.NoError(t, l.Start())
		await(t, l)
		pass(0)
		require.Equal(t, []string{"removed leads"}, j.read())
		remove()
		remove()
		require.NoError(t, l.Close())
		l.AddListener(j.listener("late"))
		pass(time.Minute)
		require.Empty(t, j.read())
	})
}
