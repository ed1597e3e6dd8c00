package latch_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

const settle = 5 * time.Second // after which a candidate asks others to yield

// quiet is a time in which nothing may happen.
func quiet() time.Duration { return testkit.Shorter(time.Hour, 10*time.Minute) }

// steered starts a latch that records its terms in the Journal. Its work takes a second to end.
func steered(t *testing.T, srv *zktest.Server, j *elections.Journal, id string, opts ...latch.Option) *latch.LeaderLatch {
	t.Helper()
	return steeredOn(t, testclient.Connect(t, srv), j, id, opts...)
}

func steeredOn(t *testing.T, client *recipes.Client, j *elections.Journal, id string, opts ...latch.Option) *latch.LeaderLatch {
	t.Helper()
	l := elections.StartLatch(t, client, append(opts, latch.WithID(id), latch.WithListener(latch.Listener{
		IsLeader: func(term *recipes.Lease) {
			j.Add("%s leads", id)
			<-term.Context().Done()
			bubble.Pause(time.Second)
			j.Add("%s has ended", id)
		},
	}))...)
	bubble.Pass(elections.Tick)
	return l
}

// requireNobodyAsked requires that no znode of the election has a request to yield.
func requireNobodyAsked(t *testing.T, srv *zktest.Server) {
	t.Helper()
	for _, path := range elections.Paths(srv) {
		data, _, _ := srv.Get(path)
		require.NotContains(t, string(data), "__YIELD__", path)
	}
}

// ids are those of the participants, in order.
func ids(t *testing.T, l *latch.LeaderLatch) []string {
	t.Helper()
	participants, err := l.Participants(t.Context())
	require.NoError(t, err)
	var all []string
	for _, p := range participants {
		all = append(all, p.ID)
	}
	return all
}

// A candidate of a higher priority leads after a while: by one handover, in which the leader's work ends first, past all others who wait.
func TestHigherPriorityTakesOver(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		for i := range 4 {
			steered(t, srv, j, fmt.Sprint("low-", i), latch.WithPriority(i%2))
		}
		require.Equal(t, []string{"low-0 leads"}, j.Read())
		bubble.Pass(time.Minute) // low-1 and low-3 have a higher one
		require.Equal(t, []string{"low-0 has ended", "low-1 leads"}, j.Read())
		high := steered(t, srv, j, "high", latch.WithPriority(7))
		bubble.Pass(settle - time.Second)
		require.Empty(t, j.Read(), "it has to take part for a while first")
		requireNobodyAsked(t, srv)
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"low-1 has ended", "high leads"}, j.Read())
		require.Len(t, ids(t, high), 5)
		require.ElementsMatch(t, []string{"low-0", "low-1", "low-2", "low-3"}, ids(t, high)[1:])
		participants, err := high.Participants(t.Context())
		require.NoError(t, err)
		require.Equal(t, 7, participants[0].Priority)
		require.Contains(t, participants[0].Path, "-p7-latch-")
		bubble.Pass(quiet())
		require.Empty(t, j.Read(), "nobody asks a leader of the highest priority")
		require.NoError(t, high.Close())
		bubble.Pass(time.Minute)
		leaders := slices.DeleteFunc(j.Read(), func(line string) bool { return !strings.HasSuffix(line, "leads") })
		require.Regexp(t, `^low-[13] leads$`, leaders[len(leaders)-1], "one of those with 1")
		require.LessOrEqual(t, len(leaders), 2, "at most one of those with 0 was ahead of them: they stand in any order, because all of them have made way at once")
	})
}

// Waiting candidates make way before the leader is asked. Even if the leader's work ends at once, none of them leads
// in between.
func TestWaitingCandidatesYieldBeforeTheLeader(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		enter := func(id string, priority int) *latch.LeaderLatch {
			l := elections.StartLatch(t, testclient.Connect(t, srv), latch.WithID(id), latch.WithPriority(priority), latch.WithListener(latch.Listener{
				IsLeader: func(*recipes.Lease) { j.Add("%s leads", id) },
			}))
			bubble.Pass(elections.Tick)
			return l
		}
		leader := enter("low-0", 0).Path()
		for i := range 4 {
			enter(fmt.Sprint("low-", i+1), 0)
		}
		number := func(path string) string { return path[len(path)-10:] }
		var isAsked, isAskedEarly atomic.Bool
		srv.Inject(func(zktest.Request) zktest.Fault {
			if data, _, _ := srv.Get(leader); strings.HasPrefix(string(data), "__YIELD__") {
				paths := elections.Paths(srv)
				slices.SortFunc(paths, func(a, b string) int { return strings.Compare(number(a), number(b)) })
				isAsked.Store(true)
				isStillThere := paths[0] == leader // it may be deleted since it was read
				isAskedEarly.Store(isAskedEarly.Load() || isStillThere && !strings.Contains(paths[1], "-p7-"))
			}
			return zktest.Fault{}
		})
		enter("high", 7)
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"low-0 leads", "high leads"}, j.Read())
		require.True(t, isAsked.Load())
		require.False(t, isAskedEarly.Load())
	})
}

// Candidates of the same or a lower priority wait for their turn.
func TestSamePriorityWaits(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		steered(t, srv, j, "first", latch.WithPriority(1))
		steered(t, srv, j, "second", latch.WithPriority(1))
		steered(t, srv, j, "third", latch.WithPriority(-1))
		log := srv.Observe()
		bubble.Pass(quiet())
		require.Equal(t, []string{"first leads"}, j.Read())
		require.LessOrEqual(t, log.Count(zktest.OpGetChildren2), 3, "each looks once")
		requireNobodyAsked(t, srv)
	})
}

// Candidates without priorities, such as Curator's, are never asked, whether they lead or wait, and their znodes stay
// unchanged. A leader does not step down for a candidate behind them, because they would lead.
func TestCandidatesWithoutPriority(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		low := steered(t, srv, j, "low", latch.WithPriority(0))
		foreign := steered(t, srv, j, "foreign")
		steered(t, srv, j, "between", latch.WithPriority(0))
		high := steered(t, srv, j, "high", latch.WithPriority(9))
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"low leads"}, j.Read())
		require.Equal(t, []string{"low", "foreign", "high", "between"}, ids(t, high), "those who wait make way, so that high is the next")
		data, _, _ := srv.Get(foreign.Path())
		require.Equal(t, "foreign", string(data))
		require.NoError(t, low.Close())
		bubble.Pass(quiet())
		require.Equal(t, []string{"low has ended", "foreign leads"}, j.Read())
		require.NoError(t, foreign.Close())
		bubble.Pass(2 * time.Second)
		require.Equal(t, []string{"foreign has ended", "high leads"}, j.Read())
	})
}

// Curator's latch watches the znode ahead once, and a change of its data uses the watch up. So neither a candidate of a higher
// priority nor a transfer writes into a znode directly ahead of a candidate without a priority.
func TestZnodeAheadOfCuratorsLatchIsLeftAlone(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		steered(t, srv, j, "leader", latch.WithPriority(0))
		low := steered(t, srv, j, "low", latch.WithPriority(0)).Path()
		foreign := steered(t, srv, j, "foreign")
		high := steered(t, srv, j, "high", latch.WithPriority(9))
		err := high.TransferTo(t.Context(), "foreign")
		require.ErrorIs(t, err, recipes.ErrNotSteered)
		require.ErrorContains(t, err, path.Base(foreign.Path()))
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"leader", "low", "foreign", "high"}, ids(t, high))
		data, _, exists := srv.Get(low)
		require.True(t, exists)
		require.Equal(t, "low", string(data))
		require.NoError(t, foreign.Close())
		bubble.Pass(time.Minute)
		require.Equal(t, "high", ids(t, high)[0], "now there is nobody to disturb")
	})
}

// The candidate behind the asked one leaves after the read, so that a candidate without a priority may watch the znode
// by now.
func TestRequestMeetsAnotherFollower(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		low := steered(t, srv, j, "low", latch.WithPriority(0)).Path()
		client := testclient.Connect(t, srv)
		high := steeredOn(t, client, j, "high", latch.WithPriority(9)).Path()
		foreign := steered(t, srv, j, "foreign")
		session, hasRead, isAsked := elections.SessionOf(client), false, false
		srv.Inject(func(r zktest.Request) zktest.Fault {
			switch {
			case r.Session != session:
			case r.Op == zktest.OpGetData && r.Path == low:
				hasRead = true // and asks now
			case r.Op == zktest.OpMulti && hasRead && !isAsked:
				isAsked = true
				srv.Delete(high)
			}
			return zktest.Fault{}
		})
		bubble.Pass(settle + time.Second)
		require.True(t, isAsked)
		data, _, _ := srv.Get(low)
		require.Equal(t, "low", string(data))
		require.Equal(t, []string{"low", "foreign", "high"}, ids(t, foreign))
		bubble.Pass(10 * time.Minute)
		require.Equal(t, []string{"low leads"}, j.Read(), "foreign is in between")
	})
}

// A candidate of a higher priority joins, and leaves before its request is followed. The leader continues, and restores its id.
func TestRequestOfACandidateThatLeft(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		low := steered(t, srv, j, "low", latch.WithPriority(0))
		second := steered(t, srv, j, "second", latch.WithPriority(0))
		srv.Put(low.Path(), []byte("__YIELD__ priority _c_0d9b4b5e-8a2e-4ac7-9d3b-1d3b5e8a2e4a-p9-latch-0000000099\nlow"))
		bubble.Pass(settle)
		data, _, _ := srv.Get(low.Path())
		require.Equal(t, "low", string(data))
		require.Equal(t, []string{"low leads"}, j.Read())
		// Nor does a leader follow a request of a candidate without a higher priority.
		_, name, _ := strings.Cut(second.Path(), elections.Path+"/")
		srv.Put(low.Path(), []byte("__YIELD__ priority "+name+"\nlow"))
		bubble.Pass(settle)
		require.Equal(t, []string{"low", "second"}, ids(t, low))
		require.Empty(t, j.Read())
	})
}

// A request whose sender left is withdrawn at the moment at which a transfer asks its candidate to stay. The request to stay
// is kept.
func TestStayMeetsARequestThatIsTakenBack(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		client := testclient.Connect(t, srv)
		low := steeredOn(t, client, j, "low", latch.WithPriority(0)).Path()
		steered(t, srv, j, "second", latch.WithPriority(0))
		const gone = "_c_0d9b4b5e-8a2e-4ac7-9d3b-1d3b5e8a2e4a-p9-latch-0000000099\nlow"
		session, hasListed, isAsked := elections.SessionOf(client), false, false
		srv.Inject(func(r zktest.Request) zktest.Fault {
			switch {
			case r.Session != session || isAsked:
			case r.Op == zktest.OpGetChildren2:
				hasListed = true // and reads the request once more
			case r.Op == zktest.OpGetData && r.Path == low && hasListed:
				isAsked = true
				srv.Put(low, []byte("__YIELD__ stay "+gone))
			}
			return zktest.Fault{}
		})
		srv.Put(low, []byte("__YIELD__ priority "+gone))
		bubble.Pass(settle)
		require.True(t, isAsked)
		data, _, _ := srv.Get(low)
		require.Equal(t, "__YIELD__ stay "+gone, string(data))
	})
}

// A process of a higher priority that starts and fails again and again does not affect the leader for long: the leader follows
// its requests ever more rarely, in the end every five minutes.
func TestFlappingCandidate(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		steered(t, srv, j, "steady", latch.WithPriority(0))
		client := testclient.Connect(t, srv)
		for range testkit.Shorter(200, 60) { // more than two hours, or 40 minutes
			l := steeredOn(t, client, j, "flapping", latch.WithPriority(5))
			bubble.Pass(30 * time.Second)
			require.NoError(t, l.Close())
			bubble.Pass(10 * time.Second)
		}
		handovers := 0
		for _, line := range j.Read() {
			if line == "flapping leads" {
				handovers++
			}
		}
		require.Greater(t, handovers, 2)
		require.Less(t, handovers, 50)
	})
}

// A candidate of a higher priority that hangs takes over and is of no use for as long as its session lasts, and no longer.
func TestCandidateThatCantTakeOver(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t, zktest.WithServers(2)), &elections.Journal{}
		on := func(server string) *recipes.Client {
			return zkclient.ConnectTo(t, srv, []string{server}, recipes.WithSessionTimeout(elections.Timeout))
		}
		low := steeredOn(t, on(srv.Addrs()[1]), j, "low", latch.WithPriority(0)).Path()
		client := on(srv.Addr())
		steeredOn(t, client, j, "hanging", latch.WithPriority(5))
		hanging := elections.SessionOf(client)
		srv.Inject(func(r zktest.Request) zktest.Fault { // its server hangs right after the request
			if r.Op == zktest.OpMulti && r.Session == hanging {
				time.AfterFunc(time.Millisecond, func() {
					if data, _, _ := srv.Get(low); strings.HasPrefix(string(data), "__YIELD__") {
						srv.Freeze(srv.Addr())
					}
				})
			}
			return zktest.Fault{}
		})
		bubble.Pass(settle)
		require.Equal(t, []string{"low leads"}, j.Read())
		bubble.Pass(time.Second)
		require.Equal(t, []string{"low has ended"}, j.Read())
		bubble.Pass(elections.Timeout * 5 / 4)
		require.Equal(t, []string{"low leads"}, j.Read())
		srv.Heal()
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"low has ended", "hanging leads"}, j.Read(), "when it is back, it asks again")
	})
}

// TransferTo makes the chosen candidate the leader, once, and no existing candidate takes the leadership back. A newcomer of a
// higher priority does.
func TestTransferTo(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		steered(t, srv, j, "a", latch.WithPriority(2))
		steered(t, srv, j, "b", latch.WithPriority(1))
		steered(t, srv, j, "c", latch.WithPriority(0))
		steered(t, srv, j, "d", latch.WithPriority(1))
		operator := elections.NewLatch(t, testclient.Connect(t, srv))
		began := time.Now()
		require.NoError(t, operator.TransferTo(t.Context(), "c"))
		require.InDelta(t, time.Second, time.Since(began), float64(time.Second), "the time of a's work")
		require.Equal(t, []string{"a leads", "a has ended", "c leads"}, j.ReadSettled())
		require.NoError(t, operator.TransferTo(t.Context(), "c"), "already")
		bubble.Pass(quiet())
		require.Empty(t, j.Read())
		require.ElementsMatch(t, []string{"a", "b", "c", "d"}, ids(t, operator), "all ids are in place again")
		steered(t, srv, j, "e", latch.WithPriority(2))
		steered(t, srv, j, "f", latch.WithPriority(3))
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"c has ended", "f leads"}, j.Read())
	})
}

// A candidate of a higher priority behind the target at the time of the transfer does not take the leadership back, and leads
// after the target.
func TestTransferAheadOfARival(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		first := steered(t, srv, j, "first", latch.WithPriority(2))
		target := steered(t, srv, j, "target", latch.WithPriority(0))
		steered(t, srv, j, "rival", latch.WithPriority(2))
		require.NoError(t, first.TransferTo(t.Context(), "target"))
		bubble.Pass(10 * time.Minute)
		require.Equal(t, []string{"first leads", "first has ended", "target leads"}, j.Read())
		require.Equal(t, []string{"target", "rival", "first"}, ids(t, first))
		require.NoError(t, target.Close())
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"target has ended", "rival leads"}, j.Read())
	})
}

// beforeRequest calls strike before the request of a client with a number, from now on.
func beforeRequest(srv *zktest.Server, client *recipes.Client, number int64, strike func()) {
	var requests atomic.Int64
	srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Session == client.Conn().SessionID() && r.Op != zktest.OpPing && requests.Add(1) == number {
			strike()
		}
		return zktest.Fault{}
	})
}

// The target may lose its znode before any request of the transfer, alone or with all others. The transfer then takes the target's new
// znode, unless the target has none at that moment.
func TestTargetRenewsItsZnode(t *testing.T) {
	for name, all := range map[string]bool{"alone": false, "with all others": true} {
		for at := range int64(8) {
			testkit.Bubble(t, func(t *testing.T) {
				srv, j := zktest.NewServer(t), &elections.Journal{}
				steered(t, srv, j, "leader", latch.WithPriority(0))
				target := steered(t, srv, j, "target", latch.WithPriority(0))
				gone := []string{target.Path()}
				if all {
					gone = append(elections.Paths(srv), elections.Path)
				}
				client := testclient.Connect(t, srv)
				operator := elections.NewLatch(t, client)
				beforeRequest(srv, client, at+1, func() {
					for _, path := range gone {
						srv.Delete(path)
					}
				})
				if err := operator.TransferTo(t.Context(), "target"); err != nil {
					require.ErrorIs(t, err, recipes.ErrNoCandidate, "%s, before request %d", name, at)
					return
				}
				require.Equal(t, "target", ids(t, operator)[0])
			})
		}
	}
}

// A target that has to join again may have been asked to yield to the target of another transfer. The transfer then asks it to stay, although
// no other candidate has a higher priority.
func TestTargetThatJoinsAgainIsAskedToStay(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		leader := steered(t, srv, j, "leader", latch.WithPriority(0))
		target := steered(t, srv, j, "target", latch.WithPriority(0))
		isAskedToStay := func() bool {
			data, _, _ := srv.Get(target.Path())
			return strings.HasPrefix(string(data), "__YIELD__ stay ")
		}
		steered(t, srv, j, "behind", latch.WithPriority(0))
		done := make(chan error, 1)
		go func() { done <- leader.TransferTo(t.Context(), "target") }() // joined below
		bubble.Pass(100 * time.Millisecond)
		require.False(t, isAskedToStay())
		srv.Delete(target.Path())
		bubble.Pass(elections.Tick)
		steered(t, srv, j, "last", latch.WithPriority(0)) // an asked latch must not be the last
		bubble.Eventually(t, time.Second, isAskedToStay)
		require.NoError(t, <-done)
		require.Equal(t, []string{"leader leads", "leader has ended", "target leads"}, j.ReadSettled())
	})
}

// A connection that ends at any request of TransferTo is no error. TransferTo continues on the next connection.
func TestTransferOutlastsALostConnection(t *testing.T) {
	requests := int64(math.MaxInt64) // of a transfer
	for n := int64(1); n <= requests; n++ {
		testkit.Bubble(t, func(t *testing.T) {
			srv, j := zktest.NewServer(t), &elections.Journal{}
			for _, id := range []string{"a", "b", "c"} {
				steered(t, srv, j, id, latch.WithPriority(0))
			}
			client := testclient.ConnectSettled(t, srv)
			operator, session := elections.NewLatch(t, client), elections.SessionOf(client)
			var sent atomic.Int64
			srv.Inject(func(r zktest.Request) zktest.Fault {
				if r.Session == session && r.Op != zktest.OpConnect && r.Op != zktest.OpPing && sent.Add(1) == n {
					return zktest.Fault{Lost: zktest.RequestLost}
				}
				return zktest.Fault{}
			})
			require.NoError(t, operator.TransferTo(t.Context(), "c"), "request %d", n)
			requests = max(n, sent.Load())
			require.Equal(t, "c", ids(t, operator)[0])
		})
	}
}

// If an ACL forbids writing the znodes of others, TransferTo names the candidates that it could not ask. A candidate of a
// higher priority waits, and logs the reason once. It leads once all candidates ahead may be asked.
func TestCandidatesThatMayNotBeAsked(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		unwritable := zk.WorldACL(zk.PermAll &^ zk.PermWrite)
		leader := steeredOn(t, testclient.Connect(t, srv, recipes.WithACL(unwritable...)), j, "leader", latch.WithPriority(0))
		steered(t, srv, j, "target", latch.WithPriority(0))
		operator := elections.NewLatch(t, testclient.Connect(t, srv))
		err := operator.TransferTo(t.Context(), "target")
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, "ask "+path.Base(leader.Path())+" to yield: ")

		log := &testkit.Log{}
		steeredOn(t, testclient.Connect(t, srv, recipes.WithLogger(log.Logger(slog.LevelWarn))), j, "high", latch.WithPriority(1))
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"leader leads"}, j.Read())
		requests := srv.Observe()
		bubble.Pass(time.Hour)
		require.Less(t, requests.Count(zktest.OpGetChildren2), 40, "ever more rarely, up to once in five minutes")
		require.Equal(t, 1, strings.Count(log.String(), "can't steer the election; retrying"), log.String())
		require.NoError(t, leader.Close())
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"leader has ended", "high leads"}, j.Read())
	})
}

func TestTransferErrors(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		operator := elections.NewLatch(t, testclient.Connect(t, srv))
		require.ErrorIs(t, operator.TransferTo(t.Context(), "a"), recipes.ErrNoCandidate, "nobody takes part")
		foreign := steered(t, srv, j, "foreign")
		steered(t, srv, j, "a", latch.WithPriority(0))
		require.ErrorIs(t, operator.TransferTo(t.Context(), "b"), recipes.ErrNoCandidate)
		err := operator.TransferTo(t.Context(), "a")
		require.ErrorIs(t, err, recipes.ErrNotSteered)
		require.Contains(t, err.Error(), "latch: transfer "+elections.Path)
		data, _, _ := srv.Get(foreign.Path())
		require.Equal(t, "foreign", string(data))
		require.NoError(t, foreign.Close())
		steered(t, srv, j, "b", latch.WithPriority(0))
		steered(t, srv, j, "b", latch.WithPriority(0))
		require.ErrorIs(t, operator.TransferTo(t.Context(), "b"), recipes.ErrNoCandidate, "two of them")
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		steered(t, srv, j, "c", latch.WithPriority(0))
		require.ErrorIs(t, operator.TransferTo(ctx, "c"), context.DeadlineExceeded, "the work of a takes a second")
		for _, n := range []int{-1_000_001, 1_000_001} {
			_, err := latch.New(testclient.Connect(t, srv), elections.Path, latch.WithPriority(n))
			require.ErrorIs(t, err, recipes.ErrInvalidArgument)
		}
	})
}
