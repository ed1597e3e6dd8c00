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
	"github.com/zkrecipes/zkrecipes/recipes"
)

const (
	parties      = 10 // sessions
	partySize    = 2  // competitors of each
	chaosTick    = 200 * time.Millisecond
	chaosTimeout = 3 * time.Second
	// interregnum is how long there may be no leader after a change.
	interregnum = chaosTimeout + chaosTick + slack
)

// TestAtNoInstantTwoLeaders forces 500 changes of leadership on 20 latches, and as many on 20 selectors beside them, and
// looks at every term. Where the leader takes part in the end of its term, or is cut off, the term is over before the next
// one begins. Where somebody else ends it at the server no client can know in time: there terms may overlap, and what the
// old leader writes then is refused.
func TestAtNoInstantTwoLeaders(t *testing.T) {
	server := ensemble.New(t, ensemble.Config{Private: true, TickTime: chaosTick})
	for _, r := range both {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			began := time.Now()
			a := newArena(t, server, r, seed)
			for _, kind := range a.plan() {
				a.force(t, kind)
			}
			a.close(t)
			t.Logf("%d changes, %d terms, %v", len(a.changes), len(a.log.reigns), time.Since(began).Round(time.Second))
			a.judge(t)
		})
	}
}

// arena is an election under attack.
type arena struct {
	recipe
	path    string
	server  string
	random  *rand.Rand
	conn    *zk.Conn // of the attacker and the store
	store   *store
	log     *journal
	changes []change
	healed  time.Time // when a line came back

	parties []*party
	mu      sync.Mutex // protects their participants
}

// party is a session, and those who compete in it. It has two lines to the server, as to an ensemble.
type party struct {
	lines       [2]*faultproxy.Proxy
	client      *recipes.Client
	competitors []*competitor
}

// competitor is a place in the election, taken by one participant after the other.
type competitor struct {
	id    string
	party *party
	participant
}

// change is one forced change of leadership.
type change struct {
	kind      kind
	old, next *reign
	took      time.Duration
}

func newArena(t *testing.T, e *ensemble.Ensemble, r recipe, seed uint64) *arena {
	t.Helper()
	a := &arena{
		recipe: r, path: "/chaos/" + r.name, server: e.Server(0), conn: plain(t, e.Servers()), log: newJournal(),
		random: rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // to be repeated
	}
	a.store = newStore(t, a.conn, "/store-"+r.name)
	t.Cleanup(func() { a.close(t) })
	for i := range parties {
		p := &party{lines: [2]*faultproxy.Proxy{faultproxy.New(t, a.server), faultproxy.New(t, a.server)}}
		for k := range partySize {
			p.competitors = append(p.competitors, &competitor{id: fmt.Sprintf("%d.%d", i, k), party: p})
		}
		a.parties = append(a.parties, p)
	}
	for _, p := range a.parties {
		a.open(t, p)
	}
	return a
}

// open gives a party a session, and puts participants into its places.
func (a *arena) open(t *testing.T, p *party) {
	t.Helper()
	var err error
	p.client, err = recipes.Connect(testContext(t), []string{p.lines[0].Addr(), p.lines[1].Addr()}, recipes.WithSessionTimeout(chaosTimeout))
	require.NoError(t, err)
	for _, c := range p.competitors {
		a.enter(t, c)
	}
}

// enter puts a new participant into a competitor's place.
func (a *arena) enter(t *testing.T, c *competitor) {
	t.Helper()
	p, err := a.create(c.party.client, a.path, c.id, func(lease *recipes.Lease) { a.reign(c, lease) })
	require.NoError(t, err)
	a.mu.Lock()
	c.participant = p
	a.mu.Unlock()
	require.NoError(t, p.Start())
}

// close ends the election.
func (a *arena) close(t *testing.T) {
	t.Helper()
	for _, p := range a.parties {
		a.heal(p)
		if p.client != nil {
			require.NoError(t, p.client.Close())
		}
	}
	require.Empty(t, children(t, a.conn, a.path))
}

// reign is the leader's work. It writes when it begins, and once more when it learns that its term is over.
func (a *arena) reign(c *competitor, lease *recipes.Lease) {
	r := &reign{lease: lease, by: c, began: time.Now()}
	r.rivals = a.rivals(r)
	r.first = a.store.write(lease)
	a.log.begin(r)
	<-lease.Context().Done()
	ended := time.Now()
	a.log.end(r, ended, context.Cause(lease.Context()), a.store.write(lease))
}

// rivals are those who say that they lead, at a time when the term in question stands.
func (a *arena) rivals(r *reign) []sighting {
	a.mu.Lock()
	defer a.mu.Unlock()
	var seen []sighting
	for _, p := range a.parties {
		for _, c := range p.competitors {
			if at := time.Now(); c != r.by && c.participant != nil && c.HasLeadership() && r.lease.Context().Err() == nil {
				seen = append(seen, sighting{c, at})
			}
		}
	}
	return seen
}

// competitor returns the one with this id.
func (a *arena) competitor(id string) *competitor {
	for _, p := range a.parties {
		for _, c := range p.competitors {
			if c.id == id {
				return c
			}
		}
	}
	return nil
}

// plan lists the changes to force, in the order of the seed.
func (a *arena) plan() []kind {
	var plan []kind
	for _, k := range kinds {
		for range k.times {
			plan = append(plan, k)
		}
	}
	a.random.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	return plan
}

// force makes one change, and waits for the next leader.
func (a *arena) force(t *testing.T, k kind) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	old, err := a.log.leader(ctx)
	require.NoError(t, err, "before: %s", k.name)
	began := time.Now()
	k.force(ctx, t, a, old)
	next, err := a.log.after(ctx, old)
	require.NoError(t, err, "after: %s, by %s", k.name, old)
	if a.healed.After(began) && a.healed.Before(next.began) {
		began = a.healed // the server may have heard of the session until then
	}
	took := next.began.Sub(began)
	require.LessOrEqual(t, took, interregnum, "%s, by %s", k.name, old)
	late := a.store.write(old.lease)
	require.False(t, late.claimed, "%s: a late write by %s", k.name, old)
	require.ErrorIs(t, late.err, zk.ErrNoNode, "%s: a late write by %s", k.name, old)
	a.changes = append(a.changes, change{k, old, next, took})
}
