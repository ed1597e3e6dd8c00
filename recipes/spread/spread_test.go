package spread_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/spread"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where clients without a logger log
	goleak.VerifyTestMain(m)
}

const meeting = "/shards/spread"

// pass lets virtual time pass, including all events due at the end of d.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

// process is one of several processes that take part in all elections.
type process struct {
	client    *recipes.Client
	spread    *spread.Spread // nil: it does not spread
	elections []*latch.LeaderLatch
}

func start(t *testing.T, srv *zktest.Server, id string, elections int, spreads bool, opts ...latch.Option) *process {
	t.Helper()
	return startOn(t, testclient.Connect(t, srv), id, elections, spreads, opts...)
}

func startOn(t *testing.T, client *recipes.Client, id string, elections int, spreads bool, opts ...latch.Option) *process {
	t.Helper()
	p := &process{client: client}
	if spreads {
		var err error
		p.spread, err = spread.New(p.client, meeting, spread.WithID(id))
		require.NoError(t, err)
	}
	for n := range elections {
		l, err := latch.New(p.client, fmt.Sprint("/shards/", n), append([]latch.Option{latch.WithID(id), latch.WithPriority(0)}, opts...)...)
		require.NoError(t, err)
		require.NoError(t, l.Start())
		p.elections = append(p.elections, l)
		if spreads {
			_, err = p.spread.Add(l)
			require.NoError(t, err)
		}
	}
	if spreads {
		require.NoError(t, p.spread.Start())
	}
	return p
}

// leads returns how many elections a process leads.
func (p *process) leads() (n int) {
	for _, l := range p.elections {
		if l.HasLeadership() {
			n++
		}
	}
	return n
}

// rollingRestart starts five processes, restarts one after the other, and returns how many elections each leads in the end.
func rollingRestart(t *testing.T, elections int, spreads bool) (leads []int) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		const processes = 5
		srv := zktest.NewServer(t)
		var all []*process
		for i := range processes {
			all = append(all, start(t, srv, fmt.Sprint("p", i), elections, spreads))
			pass(time.Second)
		}
		pass(time.Minute)
		for i, p := range all {
			require.NoError(t, p.client.Close())
			all[i] = start(t, srv, fmt.Sprint("p", i), elections, spreads)
			pass(10 * time.Second)
		}
		pass(time.Minute)
		for _, p := range all {
			leads = append(leads, p.leads())
		}
		terms := func() (tokens []int64) {
			for _, p := range all {
				for _, l := range p.elections {
					if term, ok := l.Leadership(); ok {
						tokens = append(tokens, term.FencingToken())
					}
				}
			}
			return tokens
		}
		before := terms()
		require.Len(t, before, elections)
		pass(10 * time.Minute)
		require.Equal(t, before, terms(), "nothing moves any more")
	})
	return leads
}

// A hundred elections of five processes: after a rolling restart none leads more than its share. CURATOR-622.
func TestRollingRestart(t *testing.T) {
	elections := testkit.Shorter(100, 15)
	for _, n := range rollingRestart(t, elections, true) {
		require.LessOrEqual(t, n, elections/5)
	}
	without := rollingRestart(t, testkit.Shorter(10, 5), false)
	require.Contains(t, without, 0, "without a Spread: %v", without)
}

// Processes die and others join, and each gets its share. Selectors can be spread as well.
func TestProcessesComeAndGo(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first := start(t, srv, "p0", 10, true)
		pass(time.Minute)
		require.Equal(t, 10, first.leads())
		second := start(t, srv, "p1", 10, true)
		pass(time.Minute)
		require.Equal(t, []int{5, 5}, []int{first.leads(), second.leads()})
		third := start(t, srv, "p2", 10, true)
		pass(time.Minute)
		for _, p := range []*process{first, second, third} {
			require.LessOrEqual(t, p.leads(), 4, "ten thirds, rounded up")
		}
		srv.Partition(third.client.Conn().SessionID())
		pass(time.Minute)
		require.Equal(t, []int{5, 5}, []int{first.leads(), second.leads()})
		require.NoError(t, first.spread.Close())
		require.NoError(t, first.spread.Close())
		require.ErrorIs(t, first.spread.Start(), recipes.ErrClosed)
		srv.Heal()
		pass(time.Minute)
		require.Equal(t, 10, first.leads()+second.leads()+third.leads())
	})
}

// Elections in which no other process takes part stay where they are, at no cost.
func TestElectionsThatCantMove(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		s, err := spread.New(client, meeting, spread.WithID("p0"))
		require.NoError(t, err)
		for n := range 4 {
			e, err := selector.New(client, fmt.Sprint("/shards/", n), func(ctx context.Context, _ *recipes.Lease) error {
				<-ctx.Done()
				return ctx.Err()
			}, selector.WithID("p0"), selector.WithPriority(0), selector.WithAutoRequeue())
			require.NoError(t, err)
			require.NoError(t, e.Start())
			_, err = s.Add(e)
			require.NoError(t, err)
			pass(time.Second)
			require.True(t, e.HasLeadership())
		}
		require.NoError(t, s.Start())
		require.ErrorIs(t, s.Start(), recipes.ErrAlreadyStarted)
		other := start(t, srv, "p1", 0, true) // takes part in none
		pass(10 * time.Minute)
		require.Zero(t, other.leads())
	})
}

func TestTexts(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, err := spread.New(testclient.Connect(t, zktest.NewServer(t)), meeting, spread.WithID("web-1"))
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		require.Equal(t, "spread /shards/spread", fmt.Sprintf("%+v", s))
		require.Equal(t, "[recipe=spread path=/shards/spread id=web-1]", s.LogValue().String())
	})
}

func TestInvalidArguments(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		client := testclient.Connect(t, zktest.NewServer(t))
		for _, err := range []error{newError(nil, meeting, "a"), newError(client, "relative", "a"), newError(client, meeting, "")} {
			require.ErrorIs(t, err, recipes.ErrInvalidArgument)
			require.ErrorContains(t, err, "spread: new ")
			require.NotContains(t, err.Error(), "group: ")
		}
		s, err := spread.New(client, meeting, spread.WithID("a"))
		require.NoError(t, err)
		l, err := latch.New(client, "/shards/1", latch.WithID("b"))
		require.NoError(t, err)
		for _, e := range []spread.Election{nil, l} {
			_, err = s.Add(e)
			require.ErrorIs(t, err, recipes.ErrInvalidArgument)
		}
		require.NoError(t, s.Close())
		require.ErrorIs(t, s.Start(), recipes.ErrClosed)
		require.ErrorIs(t, s.Drain(t.Context()), recipes.ErrClosed)

		late, err := spread.New(client, meeting, spread.WithID("a"))
		require.NoError(t, err)
		require.ErrorIs(t, late.Drain(t.Context()), recipes.ErrNotStarted)
		require.NoError(t, client.Close())
		require.ErrorIs(t, late.Start(), recipes.ErrClosed)
		require.EqualError(t, late.Start(), "spread: start "+meeting+": closed")
		require.NoError(t, late.Close())
	})
}

func newError(client *recipes.Client, path, id string) error {
	_, err := spread.New(client, path, spread.WithID(id))
	return err
}

// Without WithID, a Spread has the id of its client, as its candidates do.
func TestDefaultID(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		client := testclient.Connect(t, zktest.NewServer(t), recipes.WithID("web-1"))
		s, err := spread.New(client, meeting)
		require.NoError(t, err)
		candidate, err := latch.New(client, "/shard", latch.WithPriority(0))
		require.NoError(t, err)
		_, err = s.Add(candidate)
		require.NoError(t, err)
		_, err = spread.New(testclient.Connect(t, zktest.NewServer(t)), meeting)
		require.ErrorIs(t, err, recipes.ErrInvalidArgument)
		require.ErrorContains(t, err, "has a slash: set another with WithID")
		_, err = spread.New(client, meeting, nil)
		require.ErrorIs(t, err, recipes.ErrInvalidArgument)
		require.EqualError(t, err, "spread: new "+meeting+": nil option")
	})
}
