package latch_test

// The cases of Curator's TestLeaderLatch; docs/curator-cases.md maps one to the other.

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestLeadersFollowInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var latches []*latch.LeaderLatch
		for i := range 10 {
			latches = append(latches, enter(t, testclient.Connect(t, srv), latch.WithID(fmt.Sprint(i))))
			<-latches[i].Decided()
		}
		var token int64
		for i, l := range latches {
			term := await(t, l)
			require.Equal(t, []*latch.LeaderLatch{l}, leaders(latches...))
			require.Greater(t, term.FencingToken(), token)
			token = term.FencingToken()
			first, err := latches[9].Leader(t.Context())
			require.NoError(t, err)
			require.Equal(t, participant(srv, fmt.Sprint(i), term), first)
			require.NoError(t, l.Close())
			require.False(t, l.HasLeadership())
		}
		require.Empty(t, srv.Children(election))
	})
}

// The order in which latches are made means nothing, nor does a long wait.
func TestWhoStartsAloneLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		early, late := create(t, client), create(t, client)
		require.NoError(t, late.Start())
		await(t, late)
		require.NoError(t, early.Start())
		pass(10 * time.Minute)
		require.True(t, late.HasLeadership())
		require.False(t, early.HasLeadership())
		require.NoError(t, late.Close())
		await(t, early)
	})
}

func TestEachLatchIsToldOnceOfItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		var latches []*latch.LeaderLatch
		for i := range 5 {
			latches = append(latches, enter(t, testclient.Connect(t, srv), latch.WithListener(j.listener(fmt.Sprint(i)))))
			<-latches[i].Decided()
		}
		var want []string
		for i, l := range latches {
			await(t, l)
			pass(0) // else the term may be over before the listener's turn, which is not told then
			require.NoError(t, l.CloseWith(latch.NotifyLeader))
			want = append(want, fmt.Sprintf("%d leads", i), fmt.Sprintf("%d ends", i))
		}
		require.Equal(t, want, j.read())
	})
}

func TestCloseTellsNobodyUnlessAsked(t *testing.T) {
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
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var j journal
				client := testclient.Connect(t, srv)
				l, _ := lead(t, client, append(c.opts, latch.WithListener(j.listener("a")))...)
				waiting := enter(t, client, append(c.opts, latch.WithListener(j.listener("b")))...)
				<-waiting.Decided()
				pass(0)
				require.NoError(t, c.end(waiting), "who does not lead has nothing to tell")
				require.NoError(t, c.end(l))
				require.Equal(t, c.want, j.read())
				require.Empty(t, srv.Children(election))
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
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		l := create(t, testclient.Connect(t, srv))
		leader, err := l.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, recipes.Participant{}, leader)
		queue, err := l.Participants(t.Context())
		require.NoError(t, err)
		require.Empty(t, queue)
		require.Empty(t, srv.Children("/services"), "asking makes nothing")
	})
}

// The znode between the leader's and the last one goes: nobody else leads for that, and
// the last one then waits for the leader.
func TestDeathInTheMiddleElectsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first, _ := lead(t, testclient.Connect(t, srv))
		doomed := testclient.Connect(t, srv)
		middle := enter(t, doomed)
		<-middle.Decided()
		last := enter(t, testclient.Connect(t, srv))
		<-last.Decided()

		srv.Expire(sessionOf(doomed))
		pass(time.Minute)
		require.Equal(t, []*latch.LeaderLatch{first}, leaders(first, middle, last))
		require.Len(t, srv.Children(election), 3, "the one in the middle has joined again")

		require.NoError(t, first.Close())
		await(t, last)
		require.NoError(t, last.Close())
		await(t, middle)
	})
}

// Curator's latch gets its node from a list that is outdated by the time it sets its
// watch. Here the one ahead goes just then, for as many times as there are.
func TestNobodyMissesThatTheOneAheadHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		const ahead = 20
		for i := range ahead {
			srv.Put(fmt.Sprintf("%s/latch-%010d", election, i), nil)
		}
		srv.SetSequence(election, ahead)
		log := srv.Observe()
		remove := srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetData && len(r.Path) == len(election)+len("/latch-0000000000") {
				srv.Delete(r.Path)
			}
			return zktest.Fault{}
		})
		defer remove()
		l := enter(t, testclient.Connect(t, srv))
		start := time.Now()
		await(t, l)
		require.Less(t, time.Since(start), tick, "at once")
		require.LessOrEqual(t, log.Count(), 3*ahead+5)
	})
}

// Those who are asked for leave at the moment they are asked: that is no error, and takes no
// time, even for a client that tries everything once.
func TestLeaderThatHasJustLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv, recipes.WithRetryPolicy(recipes.RetryPolicy{MaxAttempts: 1}))
		for i := range 3 {
			srv.Put(fmt.Sprintf("%s/latch-%010d", election, i), []byte{byte('a' + i)})
		}
		leaving := 2
		srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetData && leaving > 0 {
				leaving--
				srv.Delete(r.Path)
			}
			return zktest.Fault{}
		})
		pass(time.Second)
		start := time.Now()
		leader, err := create(t, client).Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, "c", leader.ID)
		require.Equal(t, start, time.Now())
	})
}

func TestRelativePathIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		for _, path := range []string{"", "services", "/services/", "/a/../b", "/zookeeper/a"} {
			_, err := latch.New(client, path)
			require.ErrorIs(t, err, recipes.ErrInvalidPath, "%q", path)
		}
	})
}
