package interop_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/group"
)

// Members of both languages see each other under the same IDs, with any characters, with the same data, and notice when a
// member leaves.
func TestGroup(t *testing.T) {
	t.Parallel()
	path := testkit.Path(t)
	byJava, byGo := []string{"web 1", "münchen", "100%"}, []string{"web 2", "köln", "50%25", "a+b&c", "host:4711"}
	var java []javaMember
	for _, id := range byJava {
		java = append(java, newJavaMember(t, "member", path, id, "java "+id))
	}
	var own []*group.Group
	for _, id := range byGo {
		g, err := group.New(connect(t, options{}), path, group.WithID(id))
		require.NoError(t, err)
		require.NoError(t, g.Join([]byte("go "+id)))
		require.NoError(t, g.Await(testkit.Context(t)))
		own = append(own, g)
	}
	want := map[string]string{}
	for _, id := range byJava {
		want[id] = "java " + id
	}
	for _, id := range byGo {
		want[id] = "go " + id
	}
	lists := own[0].Watch(testkit.Context(t))
	seeWanted := func(why string) {
		for _, observer := range java[1:] {
			testkit.Eventually(t, func() bool { return sameMembers(want, observer.do(t, "members")) }, "Curator: "+why)
		}
		for {
			var shown []string
			for _, m := range testkit.Receive(t, lists, why) {
				shown = append(shown, m.ID, string(m.Data))
			}
			if sameMembers(want, shown) {
				return
			}
		}
	}
	seeWanted("all have joined")

	java[1].do(t, "data", "changed")
	want[byJava[1]] = "changed"
	seeWanted("Java has changed its data")
	require.NoError(t, own[1].Join([]byte("changed too")))
	want[byGo[1]] = "changed too"
	seeWanted("Go has changed its data")
	java[0].do(t, "leave")
	delete(want, byJava[0])
	seeWanted("Java has left")
	require.NoError(t, own[2].Leave())
	delete(want, byGo[2])
	seeWanted("Go has left")
}

// sameMembers reports whether the members shown, IDs and data in turn, are those wanted, once each.
func sameMembers(want map[string]string, shown []string) bool {
	if len(shown) != 2*len(want) {
		return false
	}
	for pair := range slices.Chunk(shown, 2) {
		if data, ok := want[pair[0]]; !ok || data != pair[1] {
			return false
		}
	}
	return true
}
