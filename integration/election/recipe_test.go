package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// participant is what a latch and a selector have in common.
type participant interface {
	Start() error
	Close() error
	HasLeadership() bool
	Leader(ctx context.Context) (recipes.Participant, error)
	Participants(ctx context.Context) ([]recipes.Participant, error)
}

// recipe makes participants that call work when a term begins. work has to return when the term ends.
type recipe struct {
	name   string
	prefix string // of the znodes, between uuid and number
	create func(c *recipes.Client, path, id string, work func(term *recipes.Lease)) (participant, error)
}

// both are the recipes under test.
var both = []recipe{
	{"latch", "latch-", func(c *recipes.Client, path, id string, work func(*recipes.Lease)) (participant, error) {
		return latch.New(c, path, latch.WithID(id), latch.WithListener(latch.Listener{IsLeader: work}))
	}},
	{"selector", "lock-", func(c *recipes.Client, path, id string, work func(*recipes.Lease)) (participant, error) {
		return selector.New(c, path, func(_ context.Context, term *recipes.Lease) error {
			work(term)
			return nil
		}, selector.WithID(id), selector.WithAutoRequeue(),
			selector.WithRequeueBackoff(recipes.RetryPolicy{InitialInterval: time.Millisecond})) // terms are short here
	}},
}

// eachRecipe runs a test once for the latch and once for the selector.
func eachRecipe(t *testing.T, test func(t *testing.T, r recipe)) {
	t.Helper()
	for _, r := range both {
		t.Run(r.name, func(t *testing.T) { test(t, r) })
	}
}

// member is a participant whose terms the test hears of.
type member struct {
	participant
	id    string
	began chan term
}

// term is one term, as its leader saw it begin.
type term struct {
	*recipes.Lease
	at time.Time
}

// join makes a member that is not started.
func (r recipe) join(t *testing.T, client *recipes.Client, path, id string) *member {
	t.Helper()
	m := &member{id: id, began: make(chan term, 100)}
	var err error
	m.participant, err = r.create(client, path, id, func(lease *recipes.Lease) {
		m.began <- term{lease, time.Now()}
		<-lease.Context().Done()
	})
	require.NoError(t, err)
	return m
}

// enter makes a member that takes part until the end of the test.
func (r recipe) enter(t *testing.T, client *recipes.Client, path, id string) *member {
	t.Helper()
	m := r.join(t, client, path, id)
	require.NoError(t, m.Start())
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// lead waits for the member's next term.
func (m *member) lead(t *testing.T) term {
	t.Helper()
	select {
	case began := <-m.began:
		return began
	case <-testkit.Context(t).Done():
		require.FailNow(t, m.id+" does not lead")
		return term{}
	}
}

// follows requires that no unseen term of the member began.
func (m *member) follows(t *testing.T) {
	t.Helper()
	require.Empty(t, m.began, m.id+" leads")
	require.False(t, m.HasLeadership())
}

// ended waits for the end of a term and returns why.
func ended(t *testing.T, lease term) error {
	t.Helper()
	select {
	case <-lease.Context().Done():
	case <-testkit.Context(t).Done():
		require.FailNow(t, "the term has not ended")
	}
	return context.Cause(lease.Context())
}

// requireLeader asserts that others see the leader of a term.
func requireLeader(t *testing.T, id string, lease term, seen recipes.Participant) {
	t.Helper()
	require.NotZero(t, seen.Since)
	require.Equal(t, recipes.Participant{ID: id, Path: lease.Path(), Leader: true, Token: lease.FencingToken(), Since: seen.Since}, seen)
}

// ids are the participants' ids, the leader's first.
func ids(t *testing.T, p participant) []string {
	t.Helper()
	all, err := p.Participants(testkit.Context(t))
	require.NoError(t, err)
	var ids []string
	for i, one := range all {
		require.Equal(t, i == 0, one.Leader)
		ids = append(ids, one.ID)
	}
	return ids
}
