package spread

import (
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// candidatesOf returns the members with a candidate in an election, those with the highest scores first.
func candidatesOf(election string, members []*member) []*member {
	candidates := slices.DeleteFunc(slices.Clone(members), func(m *member) bool { return !slices.Contains(m.elections, election) })
	slices.SortFunc(candidates, func(a, b *member) int { return -strings.Compare(hash(election+a.id), hash(election+b.id)) })
	return candidates
}

// wholeShare returns the fair share of a member, rounded down.
func wholeShare(m *member, members []*member) int {
	sum := new(big.Rat)
	for _, e := range m.elections {
		sum.Add(sum, big.NewRat(1, int64(len(candidatesOf(e, members)))))
	}
	return int(new(big.Int).Div(sum.Num(), sum.Denom()).Int64())
}

// naiveOwners is a second implementation of owners. It has exact shares, and counts everything again for each election.
func naiveOwners(members []*member) map[string]string {
	shares, elections := map[string]int{}, map[string]bool{}
	roundedUp := 0 // how many shares may be rounded up
	for _, m := range members {
		shares[m.id] = wholeShare(m, members)
		roundedUp -= shares[m.id]
		for _, e := range m.elections {
			elections[e] = true
		}
	}
	roundedUp += len(elections)
	owner := map[string]string{}
	for _, e := range slices.Sorted(maps.Keys(elections)) {
		loads, beyond := loadsOf(owner), 0 // how many elections have an owner beyond its share
		for id, load := range loads {
			beyond += max(0, load-shares[id])
		}
		excess := func(m *member) int {
			if excess := loads[m.id] + 1 - shares[m.id]; excess > 1 || excess == 1 && beyond >= roundedUp {
				return excess
			}
			return 0
		}
		owner[e] = slices.MinFunc(candidatesOf(e, members), func(a, b *member) int { return excess(a) - excess(b) }).id // the first of the least
	}
	return owner
}

// For any members with candidates in any elections, in any order, the owners are those of the naive implementation. So each election is owned by
// one of its candidates, and all processes agree.
func TestOwnersForRandomMembers(t *testing.T) {
	random := rand.New(rand.NewPCG(48, 0))
	for range testkit.Shorter(3_000, 500) {
		all, kept := fleet(1+random.IntN(8), random.IntN(25)), 1+random.IntN(4)
		for _, m := range all {
			m.elections = slices.DeleteFunc(slices.Clone(m.elections), func(string) bool { return random.IntN(4) >= kept })
		}
		want := naiveOwners(all)
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		require.Equal(t, want, owners(all))
	}
}
