package latch_test

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Each listener has its calls one at a time, in the order of what happened.
func TestListenersAreCalledInOrderOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var journals [3]journal
		l := create(t, testclient.Connect(t, srv))
		for i := range journals {
			var running atomic.Int32
			call := func(what string) {
				if running.Add(1) > 1 {
					t.Error("two at a time")
				}
				pause(time.Duration(rand.IntN(1000)) * time.Millisecond)
				journals[i].add("%s", what)
				running.Add(-1)
			}
			l.AddListener(latch.Listener{IsLeader: func(*recipes.Lease) { call("leads") }, NotLeader: func() { call("ends") }})
		}
		require.NoError(t, l.Start())
		await(t, l)
		want := []string{"leads"}
		for range 20 {
			pass(10 * time.Second)
			for i := range journals {
				require.Equal(t, want, journals[i].read())
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
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var journals [3]journal
		client := testclient.Connect(t, srv)
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

func TestListenerAddedWhileLeadingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		l, term := lead(t, testclient.Connect(t, srv))
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
		l := create(t, testclient.Connect(t, srv))
		var removeSelf, removeOther func()
		removeSelf = l.AddListener(latch.Listener{
			IsLeader: func(*recipes.Lease) {
				j.add("first leads")
				removeSelf()
				removeOther()
				l.AddListener(j.listener("added"))
			},
			NotLeader: func() { j.add("first ends") },
		})
		ended := false
		l.AddListener(latch.Listener{NotLeader: func() {
			if !ended {
				ended = true
				l.AddListener(j.listener("too late for this term"))
			}
		}})
		other := j.listener("other")
		removeOther = l.AddListener(latch.Listener{NotLeader: other.NotLeader})

		require.NoError(t, l.Start())
		term := await(t, l)
		pass(0)
		require.Equal(t, []string{"first leads", "added leads"}, j.read())
		removeOther() // again
		pass(time.Second)
		srv.Delete(term.Path())
		pass(time.Second)
		require.ElementsMatch(t, []string{"added ends", "added leads", "too late for this term leads"}, j.read())
	})
}

// No function of a listener is called for a term that was over before IsLeader could be called.
func TestWhatIsOverIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		l, term := lead(t, testclient.Connect(t, srv), latch.WithListener(latch.Listener{
			IsLeader: func(term *recipes.Lease) { <-term.Context().Done(); pause(reaction) },
		}))
		pass(0)
		srv.Delete(term.Path())
		require.ErrorIs(t, ended(t, term), recipes.ErrNodeDeleted)
		l.AddListener(j.listener("late"))
		pass(reaction - 1)
		require.Empty(t, j.read())
		pass(tick)
		require.Equal(t, []string{"late leads"}, j.read(), "the next term")
	})
}

func TestListenerWithoutFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		l, term := lead(t, testclient.Connect(t, srv), latch.WithListener(latch.Listener{}),
			latch.WithListener(latch.Listener{NotLeader: func() { j.add("ends") }}))
		pass(time.Second)
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
		l := create(t, testclient.Connect(t, srv), latch.WithCloseMode(latch.NotifyLeader))
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
