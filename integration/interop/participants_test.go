package interop_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// TestParticipants puts contenders of all languages in one queue, with ids of all sorts, and asks each for the
// participants.
func TestParticipants(t *testing.T) {
	t.Parallel()
	path := testkit.Path(t)
	open := map[string]session{}
	for _, l := range languages {
		open[l.name] = l.open(t, options{})
	}
	ids := []string{"größe 日本 🔒", "", " a+b%20&c ", "ä"} // one with each client; "" is zero bytes
	var members []contender
	var want []string
	for _, id := range ids {
		for _, l := range languages {
			members = append(members, open[l.name].contender(t, path, id))
			want = append(want, id)
		}
	}
	lister, err := mutex.New(connect(t, options{}), path)
	require.NoError(t, err)
	chain(t, path, members, func(nodes []string) {
		ours := participants(t, lister, len(nodes))
		for i, p := range ours {
			require.Equal(t, nodes[i], p.Path)
			require.Equal(t, i == 0, p.Leader)
			require.Equal(t, want[i], p.ID)
		}

		// A contender's thread waits for the lock, so others ask; their servers may be a moment behind.
		java := open[javaLang.name].contender(t, path, "").(*agentContender)
		testkit.Eventually(t, func() bool { return slices.Equal(nodes, java.process.Call(t, "nodes", java.name)) }, "Curator sees all")
		require.Equal(t, append([]string{want[0] + "*"}, want[1:]...), java.process.Call(t, "participants", java.name))
		python := open[pythonLang.name].contender(t, path, "").(*agentContender)
		testkit.Eventually(t, func() bool { return len(python.process.Call(t, "participants", python.name)) == len(want) }, "kazoo sees all")
		require.Equal(t, want, python.process.Call(t, "participants", python.name))
	})
}

// participants returns the contenders that a recipe of Go sees, once their number is right, because its server may lag for a
// moment.
func participants(t *testing.T, recipe interface {
	Participants(ctx context.Context) ([]recipes.Participant, error)
}, number int,
) (queue []recipes.Participant) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		var err error
		queue, err = recipe.Participants(testkit.Context(t))
		require.NoError(t, err)
		return len(queue) == number
	}, "Go sees all")
	return queue
}

// Without an id Go and Curator show where they are; each can read the other's.
func TestDefaultIDs(t *testing.T) {
	t.Parallel()
	path := testkit.Path(t)
	ours, err := mutex.New(connect(t, options{}), path)
	require.NoError(t, err)
	session := openJava(t, options{}).(agentSession)
	java := &agentContender{session.process, unique("mutex")}
	java.process.Call(t, "mutex", java.name, session.client, path)
	chain(t, path, []contender{&goContender{ctx: t.Context(), mutex: ours}, java}, func(nodes []string) {
		lister := session.contender(t, path, "").(*agentContender)
		testkit.Eventually(t, func() bool { return slices.Equal(nodes, lister.process.Call(t, "nodes", lister.name)) }, "Curator sees all")
		queue := participants(t, ours, len(nodes))
		require.Equal(t, starred(queue), lister.process.Call(t, "participants", lister.name))
		for i, p := range queue {
			require.Equal(t, nodes[i], p.Path)
			require.NotEmpty(t, strings.Trim(p.ID, " "))
		}
	})
}
