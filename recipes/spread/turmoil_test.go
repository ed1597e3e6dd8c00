package spread_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// referee watches the terms of one election, without knowledge of the Spread.
type referee struct {
	mu      sync.Mutex // protects the fields below
	holders judge.Holders[*recipes.Lease]
	tokens  judge.Tokens[*recipes.Lease]
	leader  *recipes.Lease // the latest
	since   time.Time      // when an election without a leader was last led
	terms   int
	faults  []string
}

func (r *referee) listener() latch.Option {
	return latch.WithListener(latch.Listener{IsLeader: func(term *recipes.Lease) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.terms++
		for range r.holders.Grant(term, func(l *recipes.Lease) bool { return l.Context().Err() == nil }) {
			r.faults = append(r.faults, "two leaders")
		}
		if _, grows := r.tokens.Grant(term.FencingToken(), term); !grows {
			r.faults = append(r.faults, "an old token")
		}
		r.leader = term
	}})
}

// look records that the election has a leader now, or had none for too long, which is a session timeout plus the reaction time
// of the servers and of the next candidate.
func (r *referee) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.leader != nil && r.leader.Context().Err() == nil:
		r.since = time.Now()
	case time.Since(r.since) > 2*testclient.SessionTimeout:
		r.faults = append(r.faults, fmt.Sprint("no leader since ", r.since))
	}
}

// turmoil is a fleet in which everything happens to processes.
type turmoil struct {
	t        *testing.T
	srv      *zktest.Server
	random   *rand.Rand
	log      testkit.Log
	referees []*referee // by election
	all      []*process
}

// start starts the process at an index.
func (m *turmoil) start(i int) {
	client := testclient.Connect(m.t, m.srv, recipes.WithLogger(m.log.Logger(slog.LevelInfo)))
	p := startOn(m.t, client, fmt.Sprint("p", i), 0, true)
	for n, r := range m.referees {
		l, err := latch.New(client, fmt.Sprint("/shards/", n), latch.WithID(fmt.Sprint("p", i)), latch.WithPriority(0), r.listener())
		require.NoError(m.t, err)
		require.NoError(m.t, l.Start())
		_, err = p.spread.Add(l)
		require.NoError(m.t, err)
		p.elections = append(p.elections, l)
	}
	m.all[i] = p
}

// pass lets time pass, and has the referees look every second.
func (m *turmoil) pass(d time.Duration) {
	for range d / time.Second {
		pass(time.Second)
		for _, r := range m.referees {
			r.look()
		}
	}
}

// strike does something to one process.
func (m *turmoil) strike() (name string) {
	i := m.random.IntN(len(m.all))
	p := m.all[i]
	switch m.random.IntN(6) {
	case 0:
		require.NoError(m.t, p.client.Close())
		m.start(i)
		return "restart"
	case 1:
		ctx, cancel := context.WithTimeout(m.t.Context(), time.Second)
		defer cancel()
		_ = p.spread.Drain(ctx) // others may be young
		require.NoError(m.t, p.client.Close())
		m.start(i)
		return "drain"
	case 2:
		m.srv.Partition(p.client.Conn().SessionID()) // the process hangs for a while
		m.pass(time.Duration(m.random.IntN(12)) * time.Second)
		m.srv.Heal()
		return "partition"
	case 3:
		m.srv.Partition(p.client.Conn().SessionID())
		go func() { _ = p.client.Close() }() // ends with the heal; the cleanup of the client joins it
		m.start(i)
		m.pass(time.Duration(m.random.IntN(12)) * time.Second)
		m.srv.Heal()
		return "crash"
	case 4:
		m.srv.Delete(fmt.Sprint(meeting, "/p", i))
		return "member deleted"
	default:
		m.srv.Stop(m.srv.Addr())
		m.pass(time.Duration(m.random.IntN(3)) * time.Second)
		require.NoError(m.t, m.srv.Restart(m.srv.Addr()))
		return "server restarted"
	}
}

// Processes restart, drain, hang and crash, in any order. No election has two leaders, or none for long, and once the processes are left
// alone, each leads its share and everything rests.
func TestTurmoil(t *testing.T) {
	for seed := range uint64(testkit.Shorter(8, 1)) {
		testkit.Bubble(t, func(t *testing.T) {
			m := &turmoil{t: t, srv: zktest.NewServer(t), random: rand.New(rand.NewPCG(seed, 48)), all: make([]*process, 3)}
			for range 7 {
				m.referees = append(m.referees, &referee{since: time.Now()})
			}
			for i := range m.all {
				m.start(i)
			}
			var history []string
			for range 30 {
				m.pass(time.Duration(m.random.IntN(20)) * time.Second)
				history = append(history, m.strike())
			}
			m.pass(5 * time.Minute)
			verdict := func() (faults []string, terms int) {
				for _, r := range m.referees {
					r.mu.Lock()
					faults, terms = append(faults, r.faults...), terms+r.terms
					r.mu.Unlock()
				}
				return faults, terms
			}
			faults, terms := verdict()
			require.Empty(t, faults, "seed %d: %v", seed, history)
			require.ElementsMatch(t, []int{3, 2, 2}, loads(m.all), "seed %d: %v", seed, history)
			require.Less(t, terms, 7+30*7, "seed %d: at most one handover of each election after each event", seed)
			requests, written := m.srv.Observe(), m.log.String()
			pass(30 * time.Minute)
			_, later := verdict()
			require.Equal(t, terms, later, "seed %d", seed)
			require.Equal(t, written, m.log.String(), "seed %d", seed)
			require.Zero(t, requests.Count(zktest.OpGetChildren2, zktest.OpSetData, zktest.OpCreate2, zktest.OpDelete), "seed %d", seed)
			require.LessOrEqual(t, strings.Count(written, "can't take over leadership; retrying"), 30)
			require.Less(t, strings.Count(written, "\n"), 30*30, "at most 30 lines for each event, of seven elections in three processes")
		})
	}
}
