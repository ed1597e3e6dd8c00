package latch_test

// The cases of Curator's TestLeaderLatch; docs/evidence/curator-cases.md maps one to the other.

import (
	"fmt"
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

func TestLeadersFollowInTheOrderOfArrival(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var latches []*latch.LeaderLatch
		for i := range 10 {
			latches = append(latches, elections.StartLatch(t, testclient.Connect(t, srv), latch.WithID(fmt.Sprint(i))))
			<-latches[i].Decided()
		}
		var token int64
		for i, l := range latches {
			term := elections.Await(t, l)
			require.Equal(t, []*latch.LeaderLatch{l}, elections.Leaders(latches...))
			require.Greater(t, term.FencingToken(), token)
			token = term.FencingToken()
			first, err := latches[9].Leader(t.Context())
			require.NoError(t, err)
			require.Equal(t, elections.ParticipantOf(srv, fmt.Sprint(i), term), first)
			require.NoError(t, l.Close())
			require.False(t, l.HasLeadership())
		}
		require.Empty(t, srv.Children(elections.Path))
	})
}

// The order in which latches are made means nothing, nor does a long wait.
func TestWhoStartsAloneLeads(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		early, late := elections.NewLatch(t, client), elections.NewLatch(t, client)
		require.NoError(t, late.Start())
		elections.Await(t, late)
		require.NoError(t, early.Start())
		bubble.Pass(10 * time.Minute)
		require.True(t, late.HasLeadership())
		require.False(t, early.HasLeadership())
		require.NoError(t, late.Close())
		elections.Await(t, early)
	})
}

func TestEachLatchReportsItsTermOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j elections.Journal
		var latches []*latch.LeaderLatch
		for i := range 5 {
			latches = append(latches, elections.StartLatch(t, testclient.Connect(t, srv), latch.WithListener(j.Listener(fmt.Sprint(i)))))
			<-latches[i].Decided()
		}
		var want []string
		for i, l := range latches {
			elections.Await(t, l)
			bubble.Pass(0) // otherwise the term may end before the listener's turn, and is not reported
			require.NoError(t, l.CloseWith(latch.NotifyLeader))
			want = append(want, fmt.Sprintf("%d leads", i), fmt.Sprintf("%d ends", i))
		}
		require.Equal(t, want, j.Read())
	})
}

func TestCloseCallsNoListenerByDefault(t *testing.T) {
	for name, c := range map[string]struct {
		opts []latch.Option
		end  func(*latch.LeaderLatch) error
		want []string
	}{
		"default":           {nil, (*latch.LeaderLatch).Close, []string{"a leads"}},
		"silent":            {[]latch.Option{latch.WithCloseMode(latch.Silent)}, (*latch.LeaderLatch).Close, []string{"a leads"}},
		"notify":            {[]latch.Option{latch.WithCloseMode(latch.NotifyLeader)}, (*latch.LeaderLatch).Close, []string{"a leads", "a ends"}},
		"silent after all":  {[]latch.Option{latch.WithCloseMode(latch.NotifyLeader)}, closeWith(latch.Silent), []string{"a leads"}},
		"notify after all":  {nil, closeWith(latch.NotifyLeader), []string{"a leads", "a ends"}},
		"notify, then once": {nil, twice(latch.NotifyLeader), []string{"a leads", "a ends"}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j elections.Journal
				client := testclient.Connect(t, srv)
				l, _ := elections.Lead(t, client, append(c.opts, latch.WithListener(j.Listener("a")))...)
				waiting := elections.StartLatch(t, client, append(c.opts, latch.WithListener(j.Listener("b")))...)
				<-waiting.Decided()
				bubble.Pass(0)
				require.NoError(t, c.end(waiting), "who does not lead has nothing to tell")
				require.NoError(t, c.end(l))
				require.Equal(t, c.want, j.Read())
				require.Empty(t, srv.Children(elections.Path))
			})
		})
	}
}

func closeWith(mode latch.CloseMode) func(*latch.LeaderLatch) error {
	return func(l *latch.LeaderLatch) error { return l.CloseWith(mode) }
}

func twice(mode latch.CloseMode) func(*latch.LeaderLatch) error {
	return func(l *latch.LeaderLatch) error {
		if err := l.CloseWith(mode); err != nil {
			return err
		}
		return l.CloseWith(mode)
	}
}

func TestLeaderOfAPathThatIsMissing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		l := elections.NewLatch(t, testclient.Connect(t, srv))
		leader, err := l.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, recipes.Participant{}, leader)
		queue, err := l.Participants(t.Context())
		require.NoError(t, err)
		require.Empty(t, queue)
		require.Empty(t, srv.Children("/services"), "asking makes nothing")
	})
}

// The znode between the leader's and the last one is deleted. No other candidate leads because of that, and the last
// one now waits for the leader.
func TestDeathInTheMiddleElectsNoOther(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first, _ := elections.Lead(t, testclient.Connect(t, srv))
		doomed := testclient.Connect(t, srv)
		middle := elections.StartLatch(t, doomed)
		<-middle.Decided()
		last := elections.StartLatch(t, testclient.Connect(t, srv))
		<-last.Decided()

		srv.Expire(elections.SessionOf(doomed))
		bubble.Pass(time.Minute)
		require.Equal(t, []*latch.LeaderLatch{first}, elections.Leaders(first, middle, last))
		require.Len(t, srv.Children(elections.Path), 3, "the one in the middle has joined again")

		require.NoError(t, first.Close())
		elections.Await(t, last)
		require.NoError(t, last.Close())
		elections.Await(t, middle)
	})
}

// Curator's latch sets its watch on a znode from an outdated list. Here the znode ahead is deleted right then, as
// often as possible.
func TestNoWaiterMissesTheEndOfItsPredecessor(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		const ahead = 20
		for i := range ahead {
			srv.Put(fmt.Sprintf("%s/latch-%010d", elections.Path, i), nil)
		}
		srv.SetSequence(elections.Path, ahead)
		log := srv.Observe()
		remove := srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetData && len(r.Path) == len(elections.Path)+len("/latch-0000000000") {
				srv.Delete(r.Path)
			}
			return zktest.Fault{}
		})
		defer remove()
		l := elections.StartLatch(t, testclient.Connect(t, srv))
		start := time.Now()
		elections.Await(t, l)
		require.Less(t, time.Since(start), elections.Tick, "at once")
		require.LessOrEqual(t, log.Count(), 3*ahead+5)
	})
}

// Candidates leave the moment they are asked. That is no error, and takes no time, even for a client that tries
// everything once.
func TestLeaderThatJustLeft(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv, recipes.WithRetryPolicy(recipes.RetryPolicy{MaxAttempts: 1}))
		for i := range 3 {
			srv.Put(fmt.Sprintf("%s/latch-%010d", elections.Path, i), []byte{byte('a' + i)})
		}
		leaving := 2
		srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetData && leaving > 0 {
				leaving--
				srv.Delete(r.Path)
			}
			return zktest.Fault{}
		})
		bubble.Pass(time.Second)
		start := time.Now()
		leader, err := elections.NewLatch(t, client).Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, "c", leader.ID)
		require.Equal(t, start, time.Now())
	})
}

func TestRelativePathIsRefused(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		for _, path := range []string{"", "services", "/services/", "/a/../b", "/zookeeper/a"} {
			_, err := latch.New(client, path)
			require.ErrorIs(t, err, recipes.ErrInvalidPath, "%q", path)
		}
	})
}
