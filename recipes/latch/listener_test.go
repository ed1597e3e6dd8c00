package latch_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
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

// Each listener gets its calls one at a time, in the order of events.
func TestListenersAreCalledInOrderOneAtATime(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var journals [3]elections.Journal
		l := elections.NewLatch(t, testclient.Connect(t, srv))
		for i := range journals {
			var running atomic.Int32
			call := func(what string) {
				if running.Add(1) > 1 {
					t.Error("two at a time")
				}
				bubble.Pause(time.Duration(rand.IntN(1000)) * time.Millisecond)
				journals[i].Add("%s", what)
				running.Add(-1)
			}
			l.AddListener(latch.Listener{IsLeader: func(*recipes.Lease) { call("leads") }, NotLeader: func() { call("ends") }})
		}
		require.NoError(t, l.Start())
		elections.Await(t, l)
		want := []string{"leads"}
		for range 20 {
			bubble.Pass(10 * time.Second)
			for i := range journals {
				require.Equal(t, want, journals[i].Read())
			}
			term, leads := l.Leadership()
			require.True(t, leads)
			require.NoError(t, term.Release())
			want = []string{"ends", "leads"}
		}
	})
}

// However often and fast terms begin and end, for each term a listener gets both of its calls or none.
func TestEachIsLeaderHasItsNotLeader(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var journals [3]elections.Journal
		client := testclient.Connect(t, srv)
		l := elections.NewLatch(t, client, latch.WithCloseMode(latch.NotifyLeader))
		for i := range journals {
			slow := journals[i].Listener("it")
			l.AddListener(latch.Listener{
				IsLeader:  func(term *recipes.Lease) { slow.IsLeader(term); bubble.Pause(time.Duration(i) * time.Millisecond) },
				NotLeader: func() { slow.NotLeader(); bubble.Pause(time.Duration(i) * time.Millisecond) },
			})
		}
		require.NoError(t, l.Start())
		for i := range 300 {
			bubble.Pass(time.Duration(rand.IntN(4)) * time.Millisecond)
			if term, leads := l.Leadership(); leads {
				switch i % 3 {
				case 0:
					_ = term.Release()
				case 1:
					srv.Delete(term.Path())
				default:
					srv.Expire(elections.SessionOf(client))
				}
			}
		}
		require.NoError(t, l.Close())
		for i := range journals {
			lines := journals[i].Read()
			require.NotEmpty(t, lines)
			for n, line := range lines {
				require.Equal(t, []string{"it leads", "it ends"}[n%2], line)
			}
			require.Zero(t, len(lines)%2)
		}
	})
}

func TestListenerAddedWhileLeadingIsCalled(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j elections.Journal
		l, term := elections.Lead(t, testclient.Connect(t, srv))
		bubble.Pass(time.Minute)
		l.AddListener(latch.Listener{IsLeader: func(told *recipes.Lease) {
			if told != term {
				t.Error("another term")
			}
			j.Add("told")
		}})
		bubble.Pass(0)
		require.Equal(t, []string{"told"}, j.Read())
	})
}

func TestListenersAddedAndRemovedInsideCallbacks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j elections.Journal
		l := elections.NewLatch(t, testclient.Connect(t, srv))
		var removeSelf, removeOther func()
		removeSelf = l.AddListener(latch.Listener{
			IsLeader: func(*recipes.Lease) {
				j.Add("first leads")
				removeSelf()
				removeOther()
				l.AddListener(j.Listener("added"))
			},
			NotLeader: func() { j.Add("first ends") },
		})
		ended := false
		l.AddListener(latch.Listener{NotLeader: func() {
			if !ended {
				ended = true
				l.AddListener(j.Listener("too late for this term"))
			}
		}})
		other := j.Listener("other")
		removeOther = l.AddListener(latch.Listener{NotLeader: other.NotLeader})

		require.NoError(t, l.Start())
		term := elections.Await(t, l)
		bubble.Pass(0)
		require.Equal(t, []string{"first leads", "added leads"}, j.Read())
		removeOther() // again
		bubble.Pass(time.Second)
		srv.Delete(term.Path())
		bubble.Pass(time.Second)
		require.ElementsMatch(t, []string{"added ends", "added leads", "too late for this term leads"}, j.Read())
	})
}

// No function of a listener is called for a term that was over before IsLeader could be called.
func TestEndedWaitsAreNotLogged(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j elections.Journal
		l, term := elections.Lead(t, testclient.Connect(t, srv), latch.WithListener(latch.Listener{
			IsLeader: func(term *recipes.Lease) { <-term.Context().Done(); bubble.Pause(elections.Reaction) },
		}))
		bubble.Pass(0)
		srv.Delete(term.Path())
		require.ErrorIs(t, bubble.Cause(t, term), recipes.ErrNodeDeleted)
		l.AddListener(j.Listener("late"))
		bubble.Pass(elections.Reaction - 1)
		require.Empty(t, j.Read())
		bubble.Pass(elections.Tick)
		require.Equal(t, []string{"late leads"}, j.Read(), "the next term")
	})
}

func TestListenerWithoutFunctions(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j elections.Journal
		l, term := elections.Lead(t, testclient.Connect(t, srv), latch.WithListener(latch.Listener{}),
			latch.WithListener(latch.Listener{NotLeader: func() { j.Add("ends") }}))
		bubble.Pass(time.Second)
		srv.Delete(term.Path())
		elections.Await(t, l)
		bubble.Pass(0)
		require.Equal(t, []string{"ends"}, j.Read())
	})
}

// A removed listener is not called any more, and a closed latch calls none.
func TestRemovedListenersHearNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j elections.Journal
		l := elections.NewLatch(t, testclient.Connect(t, srv), latch.WithCloseMode(latch.NotifyLeader))
		remove := l.AddListener(j.Listener("removed"))
		require.NoError(t, l.Start())
		elections.Await(t, l)
		bubble.Pass(0)
		require.Equal(t, []string{"removed leads"}, j.Read())
		remove()
		remove()
		require.NoError(t, l.Close())
		l.AddListener(j.Listener("late"))
		bubble.Pass(time.Minute)
		require.Empty(t, j.Read())
	})
}

// A term that is lost before IsLeader could be called has no NotLeader, also when a term before had both.
func TestNotLeaderOnlyOfTermsThatHaveBegun(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		var l *latch.LeaderLatch
		terms := 0
		trace := &recipes.Trace{AcquireEnd: func(_ context.Context, e recipes.AcquireEnd) {
			if terms++; e.Err == nil && terms == 2 { // it is granted, and lost before the latch calls its listeners
				srv.Delete(elections.Paths(srv)[0])
				bubble.Pause(time.Second)
			}
		}}
		l = elections.StartLatch(t, testclient.ConnectSettled(t, srv, recipes.WithTrace(trace)), latch.WithListener(j.Listener("one")))
		for range 3 {
			bubble.Pass(time.Minute)
			if term, isLeader := l.Leadership(); isLeader {
				require.NoError(t, term.Release())
			}
		}
		bubble.Pass(time.Minute)
		require.Equal(t, 5, terms)
		require.Equal(t, []string{"one leads", "one ends", "one leads", "one ends", "one leads", "one ends", "one leads"}, j.Read())
	})
}
