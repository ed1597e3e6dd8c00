package election_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/curator"
	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// Go and Java take turns in one election. All clients see the same participants in the same order, one of them leads,
// and leadership moves between the languages.
func TestTogetherWithCurator(t *testing.T) {
	agent := curator.New(t, ensemble.Shared(t).Servers(), sessionTimeout)
	agent.Do(t, "connect", "client")
	eachRecipe(t, func(t *testing.T, r recipe) {
		t.Helper()
		e := &mixed{r: r, agent: agent, path: testkit.Path(t), members: map[string]*member{}}
		for i, language := range []string{"go", "java", "go", "java"} {
			e.enter(t, fmt.Sprintf("%s-%s-%d", r.name, language, i))
		}
		for range 3 * len(e.order) {
			e.agreed(t)
			e.rotate(t)
		}
		for len(e.order) > 0 {
			e.agreed(t)
			e.leave(t, e.order[0])
		}
		require.Empty(t, children(t, observer(t), e.path))
	})
}

// mixed is an election of Go and Java. The id shows the language.
type mixed struct {
	r       recipe
	agent   *curator.Agent
	path    string
	members map[string]*member // those in Go
	order   []string           // ids, the leader's first
}

func isJava(id string) bool { return strings.Contains(id, "java") }

func (e *mixed) enter(t *testing.T, id string) {
	t.Helper()
	if isJava(id) {
		e.agent.Do(t, e.r.name, id, "client", e.path, id)
	} else {
		e.members[id] = e.r.enter(t, direct(t), e.path, id)
	}
	e.order = append(e.order, id)
	e.complete(t)
}

func (e *mixed) complete(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, func() bool { return len(children(t, observer(t), e.path)) == len(e.order) }, "the znodes")
}

// leads asks a candidate whether it leads.
func (e *mixed) leads(t *testing.T, id string) bool {
	t.Helper()
	if isJava(id) {
		return e.agent.Do(t, "leads", id) == "true"
	}
	return e.members[id].HasLeadership()
}

// agreed waits until the first one leads, and asks all about it.
func (e *mixed) agreed(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, func() bool { return e.leads(t, e.order[0]) }, e.order[0])
	for i, id := range e.order {
		require.Equal(t, i == 0, e.leads(t, id), id)
		if isJava(id) {
			seen := strings.Fields(e.agent.Do(t, "participants", id))
			require.Equal(t, e.order[0]+"*", seen[0])
			seen[0] = e.order[0]
			require.Equal(t, e.order, seen)
		} else {
			require.Equal(t, e.order, ids(t, e.members[id]))
		}
	}
}

// rotate has the leader stand again at the tail.
func (e *mixed) rotate(t *testing.T) {
	t.Helper()
	id := e.order[0]
	switch {
	case !isJava(id):
		require.NoError(t, e.members[id].lead(t).Release())
	case e.r.name == "selector":
		e.agent.Do(t, "resign", id)
	default: // Curator's latch leads until it is closed
		e.leave(t, id)
		e.enter(t, id)
		return
	}
	e.order = append(slices.Clone(e.order[1:]), id)
	testkit.Eventually(t, func() bool { return e.leads(t, e.order[0]) }, e.order[0])
	e.complete(t)
}

func (e *mixed) leave(t *testing.T, id string) {
	t.Helper()
	if isJava(id) {
		e.agent.Do(t, "close", id)
	} else {
		require.NoError(t, e.members[id].Close())
	}
	e.order = slices.DeleteFunc(slices.Clone(e.order), func(other string) bool { return other == id })
	e.complete(t)
}
