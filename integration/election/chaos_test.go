package election_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

const (
	groups       = 10 // sessions
	groupSize    = 2  // contenders of each
	chaosTick    = 200 * time.Millisecond
	chaosTimeout = 3 * time.Second
	// interregnum is how long there may be no leader after a change, and longest where the machine stood
	// still meanwhile, which mostSlow of all changes may show.
	interregnum = chaosTimeout + chaosTick + slack
	longest     = 3 * interregnum
	mostSlow    = 5
)

// TestAtNoInstantTwoLeaders forces 500 changes of leadership on 20 latches, and as many on 20 selectors beside them, and
// checks every term. If the leader takes part in the end of its term, or is cut off, the term ends before the next one
// begins. If a third party ends it at the server, no client can know in time: terms may overlap, and the old leader's
// writes are refused.
func TestAtNoInstantTwoLeaders(t *testing.T) {
	server := ensemble.New(t, ensemble.Config{Private: true, TickTime: chaosTick})
	for _, r := range both {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			began := time.Now()
			f := newFixture(t, server, r, seed)
			for _, kind := range f.plan() {
				f.force(t, kind)
			}
			f.close(t)
			t.Logf("%d changes, %d terms, %v", len(f.changes), len(f.log.terms), time.Since(began).Round(time.Second))
			f.judge(t)
		})
	}
}

// fixture is an election, its server and its contenders.
type fixture struct {
	recipe
	path    string
	server  string
	random  *rand.Rand
	conn    *zk.Conn // of the attacker and the store
	store   *store
	log     *journal
	slow    int // changes after which there was no leader for longer than interregnum
	changes []change
	healed  time.Time // the last repair of a connection

	groups []*group
	mu     sync.Mutex // protects their participants
}

// group is a session and its contenders. It has two proxies to the server, as to an ensemble.
type group struct {
	lines      [2]*faultproxy.Proxy
	client     *recipes.Client
	contenders []*contender
}

// contender takes part in the election with one participant after the other.
type contender struct {
	id    string
	group *group
	participant
}

// change is one forced change of leadership.
type change struct {
	kind      kind
	began     time.Time
	old, next *seenTerm
	took      time.Duration
}

func (c change) String() string {
	return fmt.Sprintf("%s at %s, from %s to %s", c.kind.name, c.began.Format(instant), c.old, c.next)
}

func newFixture(t *testing.T, e *ensemble.Ensemble, r recipe, seed uint64) *fixture {
	t.Helper()
	f := &fixture{
		recipe: r, path: "/chaos/" + r.name, server: e.Server(0), conn: testkit.Conn(t, e.Servers(), 10*time.Second), log: newJournal(),
		random: rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // to be repeated
	}
	f.store = newStore(t, f.conn, "/store-"+r.name)
	t.Cleanup(func() { f.close(t) })
	for i := range groups {
		p := &group{lines: [2]*faultproxy.Proxy{faultproxy.New(t, f.server), faultproxy.New(t, f.server)}}
		for k := range groupSize {
			p.contenders = append(p.contenders, &contender{id: fmt.Sprintf("%d.%d", i, k), group: p})
		}
		f.groups = append(f.groups, p)
	}
	for _, p := range f.groups {
		f.open(t, p)
	}
	return f
}

// open gives a group a session, and each of its contenders a participant.
func (f *fixture) open(t *testing.T, p *group) {
	t.Helper()
	var err error
	p.client, err = recipes.Connect(testkit.Context(t), []string{p.lines[0].Addr(), p.lines[1].Addr()}, recipes.WithSessionTimeout(chaosTimeout))
	require.NoError(t, err)
	for _, c := range p.contenders {
		f.enter(t, c)
	}
}

// enter gives a contender a new participant.
func (f *fixture) enter(t *testing.T, c *contender) {
	t.Helper()
	p, err := f.create(c.group.client, f.path, c.id, func(lease *recipes.Lease) { f.lead(c, lease) })
	require.NoError(t, err)
	f.mu.Lock()
	c.participant = p
	f.mu.Unlock()
	require.NoError(t, p.Start())
}

// close ends the election.
func (f *fixture) close(t *testing.T) {
	t.Helper()
	for _, p := range f.groups {
		f.heal(p)
		if p.client != nil {
			require.NoError(t, p.client.Close())
		}
	}
	require.Empty(t, children(t, f.conn, f.path))
}

// lead is the leader's work. It writes at the beginning, and once more at the end of its term.
func (f *fixture) lead(c *contender, lease *recipes.Lease) {
	r := &seenTerm{lease: lease, by: c, began: time.Now()}
	r.rivals = f.rivals(r)
	r.first = f.store.write(lease)
	f.log.begin(r)
	<-lease.Context().Done()
	ended := time.Now()
	f.log.end(r, ended, context.Cause(lease.Context()), f.store.write(lease))
}

// rivals are the other claims to lead while the term in question is valid.
func (f *fixture) rivals(r *seenTerm) []sighting {
	f.mu.Lock()
	defer f.mu.Unlock()
	var seen []sighting
	for _, p := range f.groups {
		for _, c := range p.contenders {
			if c == r.by || c.participant == nil {
				continue
			}
			asked, leads := time.Now(), c.HasLeadership()
			if answered := time.Now(); leads && r.lease.Context().Err() == nil {
				seen = append(seen, sighting{c, asked, answered})
			}
		}
	}
	return seen
}

// contender returns the contender with an id.
func (f *fixture) contender(id string) *contender {
	for _, p := range f.groups {
		for _, c := range p.contenders {
			if c.id == id {
				return c
			}
		}
	}
	return nil
}

// plan lists the changes to force, in the order of the seed.
func (f *fixture) plan() []kind {
	var plan []kind
	for _, k := range kinds {
		for range k.times {
			plan = append(plan, k)
		}
	}
	f.random.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	return plan
}

// force makes one change, and waits for the next leader.
func (f *fixture) force(t *testing.T, k kind) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	old, err := f.log.leader(ctx)
	require.NoError(t, err, "before: %s", k.name)
	forced := time.Now()
	began := forced
	k.force(ctx, t, f, old)
	next, err := f.log.after(ctx, old)
	require.NoError(t, err, "after: %s, by %s", k.name, old)
	if f.healed.After(began) && f.healed.Before(next.began) {
		began = f.healed // the server may have heard of the session until then
	}
	took := next.began.Sub(began)
	if took > interregnum {
		f.slow++
	}
	require.LessOrEqual(t, took, longest, "%s, by %s", k.name, old)
	require.LessOrEqual(t, f.slow, mostSlow, "%s, by %s: no leader for %v", k.name, old, took)
	late := f.store.write(old.lease)
	require.False(t, late.claimed, "%s: a late write by %s", k.name, old)
	require.ErrorIs(t, late.err, zk.ErrNoNode, "%s: a late write by %s", k.name, old)
	f.changes = append(f.changes, change{k, forced, old, next, took})
}
