package latch_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// leadersOf returns the candidates that began to lead, in order.
func leadersOf(j *elections.Journal) (leaders []string) {
	for _, line := range j.Read() {
		if id, ok := strings.CutSuffix(line, " leads"); ok {
			leaders = append(leaders, id)
		}
	}
	return leaders
}

// An idle election lists no queue and writes nothing, for any priorities and any order of the candidates. The end of a
// candidate wakes at most one other, and the best remaining candidate leads.
func TestElectionAtRestListsNothing(t *testing.T) {
	for _, priorities := range [][]int{{0, 1, 2, 3, 4}, {4, 1, 3, 0, 2}, {2, 2, -1, 5, 0}, {0, 0, 0, 0, 0}, {-3, -2, -9, -1, -5}} {
		testkit.Bubble(t, func(t *testing.T) {
			srv, j := zktest.NewServer(t), &elections.Journal{}
			var all []*latch.LeaderLatch
			for i, n := range priorities {
				all = append(all, steered(t, srv, j, fmt.Sprint("c", i), latch.WithPriority(n)))
			}
			bubble.Pass(time.Minute)
			for len(all) > 1 {
				log := srv.Observe()
				bubble.Pass(testkit.Shorter(10*time.Minute, time.Minute))
				require.Zero(t, log.Count(zktest.OpGetChildren2, zktest.OpGetChildren, zktest.OpCreate2, zktest.OpSetData), "%v, %d left", priorities, len(all))
				log.Stop()
				best := slices.Max(priorities)
				leader := slices.IndexFunc(all, (*latch.LeaderLatch).HasLeadership)
				require.Equal(t, best, priorities[leader])
				log = srv.Observe()
				require.NoError(t, all[leader].Close())
				all, priorities = slices.Delete(all, leader, leader+1), slices.Delete(slices.Clone(priorities), leader, leader+1)
				bubble.Pass(2 * time.Minute)
				require.Less(t, log.Count(zktest.OpGetChildren2), 25, "%v", priorities)
				log.Stop()
			}
		})
	}
}

// The best waiting candidate leaves before the leader yields. The next best leads instead.
func TestNextBestTakesThePlaceOfTheBest(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		steered(t, srv, j, "low", latch.WithPriority(0))
		best := steered(t, srv, j, "best", latch.WithPriority(9))
		second := steered(t, srv, j, "second", latch.WithPriority(5))
		steered(t, srv, j, "third", latch.WithPriority(4))
		bubble.Pass(settle - time.Second)
		require.NoError(t, best.Close())
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"low", "second"}, leadersOf(j))
		require.NoError(t, second.Close())
		bubble.Pass(time.Minute)
		require.Equal(t, "third", leadersOf(j)[0], "low may have been ahead")
	})
}

// A candidate of a negative priority yields like any other: in the queue, as the leader, and to a transfer.
func TestNegativePriorities(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		spare := steered(t, srv, j, "spare", latch.WithPriority(-1_000_000))
		steered(t, srv, j, "waiting", latch.WithPriority(-2))
		steered(t, srv, j, "high", latch.WithPriority(-1))
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"spare", "high"}, leadersOf(j))
		require.NoError(t, spare.TransferTo(t.Context(), "spare"))
		bubble.Pass(time.Second) // until the listener is called, too
		require.Equal(t, []string{"spare"}, leadersOf(j))
		bubble.Pass(quiet())
		require.Empty(t, leadersOf(j))
		steered(t, srv, j, "zero", latch.WithPriority(0))
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"zero"}, leadersOf(j))
	})
}

// A candidate of a high priority that arrives and leaves again and again takes over a few times, for any number of others: it
// stays for less time than the seventh hold-off lasts.
func TestFlappingCandidateWithStandbys(t *testing.T) {
	arrivals := testkit.Shorter(90, 20)
	if testkit.IsRaced {
		arrivals = 20
	}
	for standbys, priority := range map[int]int{1: 5, 3: 0, 10: -2, 20: 7} {
		testkit.Bubble(t, func(t *testing.T) {
			srv, j := zktest.NewServer(t), &elections.Journal{}
			for i := range standbys {
				steered(t, srv, j, fmt.Sprint("low-", i), latch.WithPriority(priority-5))
			}
			bubble.Pass(time.Minute)
			j.Read()
			client := testclient.Connect(t, srv)
			for range arrivals {
				l := steeredOn(t, client, j, "flapping", latch.WithPriority(priority))
				bubble.Pass(30 * time.Second)
				require.NoError(t, l.Close())
				bubble.Pass(10 * time.Second)
			}
			taken := 0
			for _, id := range leadersOf(j) {
				if id == "flapping" {
					taken++
				}
			}
			require.Less(t, taken, 8, "%d standbys", standbys)
		})
	}
}

// A candidate of a high priority crashes and restarts again and again. Leaders learn not to yield to it. Once it stays up, it
// leads.
func TestPreferredCandidateInACrashLoop(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const timeout, life, away = 30 * time.Second, 12 * time.Second, 20 * time.Second
		srv, j := zktest.NewServer(t), &elections.Journal{}
		connect := func() *recipes.Client { return testclient.Connect(t, srv, recipes.WithSessionTimeout(timeout)) }
		var standbys []*latch.LeaderLatch
		for i := range 4 {
			standbys = append(standbys, steeredOn(t, connect(), j, fmt.Sprint("low-", i), latch.WithPriority(0)))
		}
		without := 0
		look := func(d time.Duration, alive ...*latch.LeaderLatch) {
			for range d / time.Second {
				bubble.Pass(time.Second)
				if len(elections.Leaders(alive...)) == 0 {
					without++
				}
			}
		}
		rounds := testkit.Shorter(110, 40) // of 32 s
		for range rounds {
			client := connect()
			preferred := steeredOn(t, client, j, "preferred", latch.WithPriority(5))
			look(life, append(standbys[:4:4], preferred)...)
			srv.Partition(elections.SessionOf(client))
			look(away, standbys...)
		}
		require.Less(t, without, 7*30, "seconds, in which leaders have learnt")
		srv.Heal() // the processes were only cut off
		bubble.Pass(10 * time.Minute)
		leader, err := standbys[0].Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, "preferred", leader.ID)
	})
}

// Several transfers to different candidates all end well, one after the other, although each asks the candidates ahead of its own to make way: in
// little more time than the step-downs take, and without a storm of requests.
func TestTransfersAtOnce(t *testing.T) {
	for seed := range uint64(testkit.Shorter(20, 4)) {
		testkit.Bubble(t, func(t *testing.T) {
			srv, j, random := zktest.NewServer(t), &elections.Journal{}, rand.New(rand.NewPCG(seed, 8))
			n := 2 + int(seed)%4
			var all []*latch.LeaderLatch
			for i := range 7 {
				all = append(all, steered(t, srv, j, fmt.Sprint("c", i), latch.WithPriority(random.IntN(2)-1)))
			}
			bubble.Pass(time.Minute)
			j.Read()
			log, began := srv.Observe(), time.Now()
			var transfers sync.WaitGroup
			targets, failures := random.Perm(len(all))[:n], make([]error, n)
			for i, target := range targets {
				offset := time.Duration(random.IntN(300)) * time.Millisecond
				transfers.Go(func() {
					bubble.Pause(offset)
					failures[i] = all[i].TransferTo(t.Context(), fmt.Sprint("c", target))
				})
			}
			transfers.Wait()
			for i, err := range failures {
				require.NoError(t, err, "seed %d, transfer %d of %d", seed, i, n)
			}
			require.Less(t, time.Since(began), time.Duration(n+5)*time.Second, "seed %d", seed)
			require.Less(t, len(log.Requests()), 500*n, "seed %d", seed)
			require.LessOrEqual(t, len(leadersOf(j)), n+1, "seed %d", seed)
		})
	}
}

// TransferTo waits for a target that just yielded, and no longer.
func TestTransferToAnUnknownCandidate(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		l := steered(t, srv, j, "a", latch.WithPriority(0))
		began := time.Now()
		require.ErrorIs(t, l.TransferTo(t.Context(), "b"), recipes.ErrNoCandidate)
		require.InDelta(t, 3*time.Second, time.Since(began), float64(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, l.TransferTo(ctx, "b"), context.DeadlineExceeded)
		time.AfterFunc(2*time.Second, func() { steered(t, srv, j, "b", latch.WithPriority(0)) })
		require.NoError(t, l.TransferTo(t.Context(), "b"), "it joins again")
	})
}

// arena is an election whose candidates have random priorities, and to which everything happens.
type arena struct {
	t       *testing.T
	srv     *zktest.Server
	log     testkit.Log
	random  *rand.Rand
	clients []*recipes.Client
	all     []*latch.LeaderLatch

	mu      sync.Mutex // protects the fields below
	holders judge.Holders[*recipes.Lease]
	faults  int
}

func (a *arena) enter(i, priority int) {
	l, err := latch.New(a.clients[i], elections.Path, latch.WithID(fmt.Sprint("c", i)), latch.WithPriority(priority),
		latch.WithListener(latch.Listener{IsLeader: func(term *recipes.Lease) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.faults += len(a.holders.Grant(term, func(l *recipes.Lease) bool { return l.Context().Err() == nil }))
		}}))
	require.NoError(a.t, err)
	require.NoError(a.t, l.Start())
	a.all[i] = l
}

// strike does something to one candidate.
func (a *arena) strike() {
	i := a.random.IntN(len(a.all))
	switch a.random.IntN(4) {
	case 0:
		require.NoError(a.t, a.all[i].Close())
		a.enter(i, a.random.IntN(7)-4)
	case 1:
		ctx, cancel := context.WithTimeout(a.t.Context(), 5*time.Second)
		defer cancel()
		_ = a.all[i].TransferTo(ctx, fmt.Sprint("c", a.random.IntN(len(a.all)))) // the target may be cut off
	case 2:
		a.srv.Partition(elections.SessionOf(a.clients[i]))
		bubble.Pass(time.Duration(a.random.IntN(10)) * time.Second)
		a.srv.Heal()
	default:
		if term, leads := a.all[i].Leadership(); leads {
			_ = term.Release()
		}
	}
}

// Candidates of all priorities arrive, leave, hang and hand over. There are never two leaders. Afterwards the best one leads,
// and the election is idle: no list, no write, no record in the log.
func TestSteeringUnderFaults(t *testing.T) {
	for seed := range uint64(testkit.Shorter(8, 2)) {
		testkit.Bubble(t, func(t *testing.T) {
			a := &arena{t: t, srv: zktest.NewServer(t), random: rand.New(rand.NewPCG(seed, 49)), all: make([]*latch.LeaderLatch, 6)}
			for i := range a.all {
				a.clients = append(a.clients, testclient.Connect(t, a.srv, recipes.WithLogger(a.log.Logger(slog.LevelInfo))))
				a.enter(i, a.random.IntN(7)-4)
			}
			for range 40 {
				a.strike()
				bubble.Pass(time.Duration(a.random.IntN(15)) * time.Second)
			}
			bubble.Pass(time.Minute)
			require.NoError(t, a.all[0].Close())
			a.enter(0, 9)
			bubble.Pass(11 * time.Minute) // two hold-offs
			require.True(t, a.all[0].HasLeadership(), "seed %d", seed)
			requests, written := a.srv.Observe(), a.log.String()
			bubble.Pass(10 * time.Minute)
			require.Zero(t, requests.Count(zktest.OpGetChildren2, zktest.OpCreate2, zktest.OpSetData, zktest.OpDelete), "seed %d", seed)
			require.Equal(t, written, a.log.String(), "seed %d", seed)
			require.NotContains(t, written, "can't steer", "seed %d", seed)
			require.Zero(t, a.faults, "seed %d", seed)
		})
	}
}

// A request whose target left, in a znode that may not be written because of the candidate behind, neither costs requests nor
// prevails over a later one.
func TestRequestThatCanNotBeTakenBack(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, j := zktest.NewServer(t), &elections.Journal{}
		low := steered(t, srv, j, "low", latch.WithPriority(0))
		foreign := steered(t, srv, j, "foreign")
		srv.Put(low.Path(), []byte("__YIELD__ transfer _c_0d9b4b5e-8a2e-4ac7-9d3b-1d3b5e8a2e4a-p9-latch-0000000099\nlow"))
		bubble.Pass(time.Minute)
		log := srv.Observe()
		bubble.Pass(10 * time.Minute)
		require.Zero(t, log.Count(zktest.OpGetChildren2))
		require.Equal(t, []string{"low", "foreign"}, ids(t, low))
		require.NoError(t, foreign.Close())
		steered(t, srv, j, "high", latch.WithPriority(1))
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"low", "high"}, leadersOf(j))
	})
}
