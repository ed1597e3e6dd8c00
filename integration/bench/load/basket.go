package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
)

// baskets returns the locks of each turn, sorted and all different, or nil for a load of single locks. Equal loads have equal
// baskets, in each round and for each peer.
func (l Load) baskets() [][]int {
	if l.Basket == 0 {
		return nil
	}
	const seed = 1
	random := rand.New(rand.NewPCG(seed, seed))
	baskets := make([][]int, max(1, l.Pairs))
	for turn := range baskets {
		baskets[turn] = slices.Sorted(slices.Values(random.Perm(l.Locks)[:l.Basket]))
	}
	return baskets
}

// writeBaskets writes one line for each turn: the sorted paths of its basket, separated by spaces.
func writeBaskets(file string, l Load, baskets [][]int) error {
	var b strings.Builder
	for _, items := range baskets {
		paths := make([]string, len(items))
		for i, item := range items {
			paths[i] = lockPath(l.Path, l.Locks, item)
		}
		slices.Sort(paths)
		fmt.Fprintln(&b, strings.Join(paths, " "))
	}
	return os.WriteFile(file, []byte(b.String()), 0o600)
}

// readBaskets returns the paths of each turn, or nil if there is no file.
func readBaskets(file string) ([][]string, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	var baskets [][]string
	for line := range strings.Lines(string(text)) {
		baskets = append(baskets, strings.Fields(line))
	}
	return baskets, err
}

// basketContender locks another basket in each turn.
type basketContender struct {
	peer.Contender // of the basket of this turn; nil before the first

	session peer.Session
	baskets [][]string
}

// take makes the contender of the basket of a turn.
func (c *basketContender) take(ctx context.Context, turn int) (err error) {
	c.Contender, err = peer.NewBasket(ctx, c.session, c.baskets[turn])
	return err
}
