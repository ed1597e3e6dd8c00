package group_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/group"
)

func TestDiff(t *testing.T) {
	members := func(ids ...string) (list []group.Member) {
		for _, id := range ids {
			list = append(list, group.Member{ID: id, Data: []byte("data of " + id)})
		}
		return list
	}
	for _, test := range []struct{ before, after, joined, left []group.Member }{
		{},
		{before: nil, after: members("a", "b"), joined: members("a", "b")},
		{before: members("a", "b"), after: []group.Member{}, left: members("a", "b")},
		{before: members("b", "c"), after: members("a", "b", "d"), joined: members("a", "d"), left: members("c")},
		{before: members("a"), after: []group.Member{{ID: "a", Data: []byte("other")}}},
	} {
		joined, left := group.Diff(test.before, test.after)
		require.Equal(t, test.joined, joined)
		require.Equal(t, test.left, left)
	}
}
