package session

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompact(t *testing.T) {
	const c, s, r, l, x = Connected, Suspended, Reconnected, Lost, Closed
	for _, test := range []struct {
		limit    int
		in, want []State
	}{
		{0, nil, nil},
		{3, []State{c, s, r}, []State{c, s, r}},
		{2, []State{c, s, r}, []State{c}},
		{0, []State{c, s, r}, []State{c}},
		{3, []State{c, s, r, s, r}, []State{c, s, r}}, // no more than needed
		{1, []State{c, s, r, s, r, s}, []State{c, s}},
		{1, []State{c, s, l, r, s, l, r}, []State{c, s, l, r, s, l, r}}, // never a Lost
		{1, []State{c, s, l, r, s, r, s, l, r}, []State{c, s, l, r, s, l, r}},
		{1, []State{c, s, r, x}, []State{c, x}},
	} {
		require.Equal(t, test.want, dropPairs(slices.Clone(test.in), test.limit), "%v", test.in)
	}
}
