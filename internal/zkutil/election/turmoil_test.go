package election_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
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
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

var (
	seed    = flag.Uint64("seed", 1, "where everything random in a turmoil starts")
	changes = flag.Int("changes", 500, "how many changes of the leader a turmoil forces, a fifth of that where there is one kind of participants")
)

// contender is one participant of a turmoil, a latch or a selector.
type contender struct {
	name      string
	client    *recipes.Client
	reaction  time.Duration // to the end of its term
	start     func() error
	interrupt func()
	close     func() error
}

func (c *contender) String() string { return c.name }

// kind makes contenders.
type kind func(t *testing.T, j *referee, c *contender)

func aLatch(t *testing.T, j *referee, c *contender) {
	t.Helper()
	l := elections.NewLatch(t, c.client, latch.WithID(c.name), latch.WithListener(latch.Listener{
		IsLeader: func(term *recipes.Lease) { j.lead(c, term) },
	}))
	c.start, c.close = l.Start, l.Close
	c.interrupt = func() {
		if term, leads := l.Leadership(); leads {
			_ = term.Release()
		}
	}
}

// aSteeredLatch is aLatch with a priority.
func aSteeredLatch(t *testing.T, j *referee, c *contender) {
	t.Helper()
	l := elections.NewLatch(t, c.client, latch.WithID(c.name), latch.WithPriority(len(c.name)%2+int(c.name[0])%3), latch.WithListener(latch.Listener{
		IsLeader: func(term *recipes.Lease) { j.lead(c, term) },
	}))
	c.start, c.close = l.Start, l.Close
	c.interrupt = func() {
		if term, leads := l.Leadership(); leads {
			_ = term.Release()
		}
	}
}

func aSelector(t *testing.T, j *referee, c *contender) {
	t.Helper()
	s, err := selector.New(c.client, elections.Path, func(ctx context.Context, term *recipes.Lease) error {
		j.lead(c, term)
		return ctx.Err()
	}, selector.WithID(c.name), selector.WithAutoRequeue())
	require.NoError(t, err)
	c.start, c.close, c.interrupt = s.Start, s.Close, s.InterruptLeadership
}

// At no instant there are two leaders, for all that happens to twenty participants of five clients, of one kind or of
// both on one path. The exceptions are events that no client can know in time. For those, the overlap is measured,
// and the token decides.
func TestAtNoInstantTwoLeaders(t *testing.T) {
	for name, kinds := range map[string][]kind{
		"latches": {aLatch}, "selectors": {aSelector}, "both": {aLatch, aSelector}, "with priorities": {aSteeredLatch, aLatch, aSteeredLatch},
	} {
		n := *changes
		if testing.Short() {
			n /= 10
		}
		if len(kinds) == 1 {
			n /= 5
		}
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				m := &turmoil{t: t, srv: srv, referee: newReferee(), kinds: kinds, rand: rand.New(rand.NewPCG(*seed, 0)), took: map[string]time.Duration{}}
				for range 5 {
					client := testclient.Connect(t, srv)
					for range 4 {
						m.enter(client)
					}
				}
				m.run(n)
				for _, c := range m.contenders {
					require.NoError(t, c.close())
				}
				require.Empty(t, m.referee.verdict(), "seed %d", *seed)
				require.Empty(t, srv.Children(elections.Path))
				m.report()
			})
		})
	}
}

type turmoil struct {
	t          *testing.T
	srv        *zktest.Server
	referee    *referee
	kinds      []kind
	rand       *rand.Rand
	contenders []*contender
	entered    int
	heal       *time.Timer              // ends the present partition
	took       map[string]time.Duration // the longest time to the next leader, by change
}

// enter adds a participant.
func (m *turmoil) enter(client *recipes.Client) {
	c := &contender{
		name: fmt.Sprintf("%c%d", 'a'+m.entered%26, m.entered), client: client,
		reaction: time.Duration(m.rand.IntN(200)) * time.Millisecond,
	}
	m.kinds[m.entered%len(m.kinds)](m.t, m.referee, c)
	m.entered++
	m.contenders = append(m.contenders, c)
	require.NoError(m.t, c.start())
}

// run forces n changes, one after the other.
func (m *turmoil) run(n int) {
	leader := m.next(nil, "start")
	for range n {
		bubble.Pass(time.Duration(m.rand.IntN(1000)) * time.Millisecond)
		if !leader.stands() {
			leader = m.next(leader, "")
		}
		leader = m.next(leader, m.force(leader))
	}
	m.srv.Heal()
}

// next waits for the next leader, which has to lead in time.
func (m *turmoil) next(before *term, after string) *term {
	start := time.Now()
	ctx, cancel := context.WithTimeout(m.t.Context(), elections.Timeout+elections.Tick+time.Second)
	defer cancel()
	leader, err := m.referee.leader(ctx, before)
	if err != nil {
		require.FailNow(m.t, "nobody leads after "+after, "seed %d\n%s", *seed, m.referee.verdict())
	}
	m.took[after] = max(m.took[after], time.Since(start))
	return leader
}

// force ends the leader's term in one of several ways.
func (m *turmoil) force(leader *term) (how string) {
	c, session := leader.by, elections.SessionOf(leader.by.client)
	switch m.rand.IntN(6) {
	case 0:
		i := slices.Index(m.contenders, c)
		m.contenders = slices.Delete(m.contenders, i, i+1)
		require.NoError(m.t, c.close())
		m.enter(c.client)
		return "close"
	case 1:
		c.interrupt()
		return "interrupt"
	case 2:
		known, _ := m.srv.Session(session)
		m.referee.harm("expiry", judge.SessionExpired, known.Ephemerals...)
		m.slow(session)
		m.srv.Expire(session)
		return "expiry"
	case 3:
		m.partition(session, elections.Timeout*2/3, elections.Timeout)
		return "partition"
	case 4:
		m.referee.harm("deletion", judge.ZnodeDeleted, leader.lease.Path())
		m.slow(session)
		m.srv.Delete(leader.lease.Path())
		return "deletion"
	default:
		m.referee.harm("wiped parent", judge.ZnodeDeleted, elections.Paths(m.srv)...)
		m.slow(session)
		m.srv.Delete("/services")
		return "wiped parent"
	}
}

// slow delays a client's notifications by up to a second.
func (m *turmoil) slow(session int64) { m.partition(session, 0, time.Second) }

// partition lasts for the time given, and some more. Past the deadline of the leader its
// session is often still alive.
func (m *turmoil) partition(session int64, atLeast, more time.Duration) {
	if m.heal != nil {
		m.heal.Stop()
		m.srv.Heal()
	}
	m.srv.Partition(session)
	m.heal = time.AfterFunc(atLeast+time.Duration(m.rand.Int64N(int64(more))), func() { m.srv.Heal() })
}

func (m *turmoil) report() {
	for _, how := range slices.Sorted(func(yield func(string) bool) {
		for how := range m.took {
			if !yield(how) {
				return
			}
		}
	}) {
		overlaps := m.referee.overlaps[how]
		longest := time.Duration(0)
		for _, d := range overlaps {
			longest = max(longest, d)
		}
		m.t.Logf("%-12s next leader within %v, %d overlaps, the longest of %v", cmp.Or(how, "-"), m.took[how], len(overlaps), longest)
	}
	m.t.Logf("%d stale writes refused, in %v of virtual time", m.referee.store.Stale(), time.Since(m.referee.began))
}
