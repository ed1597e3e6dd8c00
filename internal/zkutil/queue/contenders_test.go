package queue

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// For all children of a directory, in each order of the listing, every contender finds itself, and
// each except the first waits for exactly one other.
func FuzzContenders(f *testing.F) {
	f.Add("_c_x\nlock-0000000001\nlock-0000000001\nlatch--1\n__lock__2147483647\nconfig\n", uint64(1))
	f.Add("a-lock-0000000010\nb-lock-0000000010\nlock-\n\n-lock--0", uint64(2))
	f.Fuzz(func(t *testing.T, listing string, seed uint64) {
		children := strings.Split(listing, "\n")
		slices.Sort(children)
		children = slices.Compact(children) // a directory has each name once
		queue := parseContenders(children, Markers)
		random := rand.New(rand.NewPCG(seed, seed))
		random.Shuffle(len(children), func(i, j int) { children[i], children[j] = children[j], children[i] })
		require.Equal(t, queue, parseContenders(children, Markers), "the order of the listing counts")
		for i, one := range queue {
			require.True(t, IsContender(one.Name))
			self, _ := newContender(one.Name, Markers)
			own, listed := slices.BinarySearchFunc(queue, self, Contender.compare)
			require.True(t, listed, "%q does not find itself", one.Name)
			require.Equal(t, i, own)
			require.Equal(t, i-1, Exclusive(queue, own))
		}
	})
}
