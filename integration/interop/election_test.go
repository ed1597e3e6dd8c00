package interop_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/interop/agent"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// TestElectionMatrix has each language lead and each one follow, with both of Curator's recipes. Rotation among more of them is
// tested with the elections.
func TestElectionMatrix(t *testing.T) {
	t.Parallel()
	for recipe, ids := range map[string][3]string{
		"latch":    {"größe 日本 🔒", "", "plain"},
		"selector": {"größe 日本 🔒", "plain", " a+b%20&c "}, // to Curator's selector no id means the host's address
	} {
		for _, first := range []string{"Go", "Curator"} {
			for _, second := range []string{"Go", "Curator"} {
				t.Run(recipe+" "+first+" leads, "+second+" follows", func(t *testing.T) {
					t.Parallel()
					election(t, recipe, first, second, ids)
				})
			}
		}
	}
}

func election(t *testing.T, recipe, first, second string, ids [3]string) {
	t.Helper()
	path := testkit.Path(t)
	leader := stand(t, first, recipe, path, ids[0])
	agreed(t, []candidate{leader}, ids[0])
	follower := stand(t, second, recipe, path, ids[1])
	queued(t, path, 2)
	agreed(t, []candidate{leader, follower}, ids[0], ids[1])

	leader.close(t)
	agreed(t, []candidate{follower}, ids[1])
	again := stand(t, first, recipe, path, ids[2])
	queued(t, path, 2)
	agreed(t, []candidate{follower, again}, ids[1], ids[2])

	follower.close(t) // a waiting candidate may leave, too
	agreed(t, []candidate{again}, ids[2])
	again.close(t)
	queued(t, path, 0)
}

// TestPriorityBesideCurator puts a candidate with a priority between two of Curator's latch or selector, which take part as
// equals: each side sees the other's ids, no client asks Curator's leader to yield, and Curator leads in its turn.
func TestPriorityBesideCurator(t *testing.T) {
	t.Parallel()
	for _, recipe := range []string{"latch", "selector"} {
		t.Run(recipe, func(t *testing.T) {
			t.Parallel()
			path := testkit.Path(t)
			first := stand(t, "Curator", recipe, path, "java-1")
			agreed(t, []candidate{first}, "java-1")
			high := standSteered(t, recipe, path, "go-high", 7)
			queued(t, path, 2)
			second := stand(t, "Curator", recipe, path, "java-2")
			nodes := queued(t, path, 3)
			require.Contains(t, nodes[1], "-p7-")
			agreed(t, []candidate{first, high, second}, "java-1", "go-high", "java-2")
			require.ErrorIs(t, high.transfer(t, "go-high"), recipes.ErrNotSteered, "Curator's leader is ahead")
			require.Equal(t, nodes, queued(t, path, 3))

			first.close(t)
			agreed(t, []candidate{high, second}, "go-high", "java-2")
			if recipe == "latch" { // Curator's would miss the end of a candidate whose znode was written to
				require.ErrorIs(t, high.transfer(t, "java-2"), recipes.ErrNotSteered)
				agreed(t, []candidate{high, second}, "go-high", "java-2")
				high.close(t)
				agreed(t, []candidate{second}, "java-2")
				high = standSteered(t, recipe, path, "go-high", 7)
			} else {
				require.NoError(t, high.transfer(t, "java-2"))
			}
			queued(t, path, 2)
			agreed(t, []candidate{second, high}, "java-2", "go-high")
			second.close(t)
			agreed(t, []candidate{high}, "go-high")
			high.close(t)
			queued(t, path, 0)
		})
	}
}

// agreed waits until the first one leads, and asks all clients about everything. Their servers may lag for a moment.
func agreed(t *testing.T, all []candidate, ids ...string) {
	t.Helper()
	testkit.Eventually(t, func() bool { return all[0].leads(t) }, "the first one leads")
	starred := append([]string{ids[0] + "*"}, ids[1:]...)
	for i, c := range all {
		require.Equal(t, i == 0, c.leads(t))
		testkit.Eventually(t, func() bool { return slices.Equal(starred, c.participants(t)) }, "everybody is seen")
		require.Equal(t, ids[0], c.leader(t))
	}
}

// candidate is a latch or a selector.
type candidate interface {
	leads(t *testing.T) bool
	leader(t *testing.T) string
	participants(t *testing.T) []string // ids, the leader's with a star
	close(t *testing.T)
}

func stand(t *testing.T, language, recipe, path, id string) candidate {
	t.Helper()
	if language == "Curator" {
		s := openJava(t, options{}).(agentSession)
		name := unique(recipe)
		s.process.Call(t, recipe, name, s.client, path, id)
		return agentCandidate{s.process, name}
	}
	client := connect(t, options{})
	if recipe == "latch" {
		return startLatch(t, client, path, latch.WithID(id))
	}
	return startSelector(t, client, path, selector.WithID(id))
}

// standSteered is stand for a candidate of this library with a priority.
func standSteered(t *testing.T, recipe, path, id string, priority int) goCandidate {
	t.Helper()
	client := connect(t, options{})
	if recipe == "latch" {
		return startLatch(t, client, path, latch.WithID(id), latch.WithPriority(priority))
	}
	return startSelector(t, client, path, selector.WithID(id), selector.WithPriority(priority))
}

func startLatch(t *testing.T, client *recipes.Client, path string, opts ...latch.Option) goCandidate {
	t.Helper()
	l, err := latch.New(client, path, opts...)
	require.NoError(t, err)
	require.NoError(t, l.Start())
	return goCandidate{l}
}

func startSelector(t *testing.T, client *recipes.Client, path string, opts ...selector.Option) goCandidate {
	t.Helper()
	s, err := selector.New(client, path, func(ctx context.Context, _ *recipes.Lease) error {
		<-ctx.Done()
		return nil
	}, append(opts, selector.WithAutoRequeue())...)
	require.NoError(t, err)
	require.NoError(t, s.Start())
	return goCandidate{s}
}

type agentCandidate struct {
	process *agent.Process
	name    string
}

func (c agentCandidate) leads(t *testing.T) bool {
	t.Helper()
	return c.process.Do(t, "leads", c.name) == "true"
}

func (c agentCandidate) leader(t *testing.T) string {
	t.Helper()
	return c.process.Do(t, "leader", c.name)
}

func (c agentCandidate) participants(t *testing.T) []string {
	t.Helper()
	return c.process.Call(t, "participants", c.name)
}

func (c agentCandidate) close(t *testing.T) {
	t.Helper()
	c.process.Call(t, "close", c.name)
}

// goCandidate is what our latch and our selector have in common.
type goCandidate struct {
	recipe interface {
		HasLeadership() bool
		Leader(ctx context.Context) (recipes.Participant, error)
		Participants(ctx context.Context) ([]recipes.Participant, error)
		TransferTo(ctx context.Context, id string) error
		Close() error
	}
}

func (c goCandidate) transfer(t *testing.T, id string) error {
	t.Helper()
	return c.recipe.TransferTo(testkit.Context(t), id)
}

func (c goCandidate) leads(t *testing.T) bool {
	t.Helper()
	return c.recipe.HasLeadership()
}

func (c goCandidate) leader(t *testing.T) string {
	t.Helper()
	leader, err := c.recipe.Leader(testkit.Context(t))
	require.NoError(t, err)
	return leader.ID
}

func (c goCandidate) participants(t *testing.T) []string {
	t.Helper()
	participants, err := c.recipe.Participants(testkit.Context(t))
	require.NoError(t, err)
	return starred(participants)
}

// starred are the ids, the leader's with a star.
func starred(participants []recipes.Participant) []string {
	ids := make([]string, len(participants))
	for i, p := range participants {
		ids[i] = p.ID
		if p.Leader {
			ids[i] += "*"
		}
	}
	return ids
}

func (c goCandidate) close(t *testing.T) {
	t.Helper()
	require.NoError(t, c.recipe.Close())
}
