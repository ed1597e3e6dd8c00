package load

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEqualLoadsHaveEqualBaskets(t *testing.T) {
	baskets := Load{Path: "/here", Locks: 20, Basket: 5, Contenders: 64, Pairs: 300}.baskets()
	require.Equal(t, baskets, Load{Path: "/there", Locks: 20, Basket: 5, Contenders: 64, Pairs: 300}.baskets())
	require.Len(t, baskets, 300)
	require.NotEqual(t, baskets[0], baskets[1])
	drawn := map[int]bool{}
	for _, items := range baskets {
		require.Len(t, items, 5)
		require.IsIncreasing(t, items)
		for _, item := range items {
			drawn[item] = true
		}
	}
	require.Len(t, drawn, 20, "each item is drawn")
}

// Paths are in the order of a multilock, which compares strings.
func TestBasketsSurviveTheirFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "baskets")
	require.NoError(t, writeBaskets(file, Load{Path: "/lock", Locks: 11}, [][]int{{2, 9, 10}, {0}}))
	got, err := readBaskets(file)
	require.NoError(t, err)
	require.Equal(t, [][]string{{"/lock-10", "/lock-2", "/lock-9"}, {"/lock-0"}}, got)
}
