package spread

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
)

// fleet returns members with candidates in all of some elections.
func fleet(members, elections int) (all []*member) {
	var hashes []string
	for n := range elections {
		hashes = append(hashes, hash(fmt.Sprint("latch /shards/", n)))
	}
	for n := range members {
		all = append(all, &member{id: fmt.Sprint("web-", n), elections: hashes})
	}
	return all
}

// loadsOf counts the elections of each owner.
func loadsOf(owner map[string]string) map[string]int {
	loads := map[string]int{}
	for _, id := range owner {
		loads[id]++
	}
	return loads
}

func requireExact(t *testing.T, members []*member, elections int) map[string]string {
	t.Helper()
	owner := owners(members)
	require.Len(t, owner, elections)
	loads := loadsOf(owner)
	for _, m := range members {
		require.GreaterOrEqual(t, loads[m.id], elections/len(members), "%d members, %d elections", len(members), elections)
		require.LessOrEqual(t, loads[m.id], (elections+len(members)-1)/len(members), "%d members, %d elections", len(members), elections)
	}
	return owner
}

// For every number of members and of elections, the loads differ by one at most, and the order of the members does not matter.
func TestSharesAreExact(t *testing.T) {
	for members := 1; members <= 9; members++ {
		for elections := range 60 {
			all := fleet(members, elections)
			owner := requireExact(t, all, elections)
			slices.Reverse(all)
			require.Equal(t, owner, owners(all))
		}
	}
	requireExact(t, fleet(7, 1000), 1000)
	require.Empty(t, owners(nil))
}

// A member that arrives or leaves moves little more than its share.
func TestFewElectionsMove(t *testing.T) {
	for _, members := range []int{2, 4, 6, 10} {
		all := fleet(members+1, 200)
		moved, least := 0, 0
		for away := range all {
			with, without := owners(all), owners(slices.Delete(slices.Clone(all), away, away+1))
			for e, id := range with {
				if without[e] != id {
					moved++
				}
				if id == all[away].id {
					least++
				}
			}
		}
		require.Less(t, float64(moved), 1.5*float64(least), "%d members", members)
	}
}

// Each kind of elections is balanced over its candidates: a process gets a share of the elections that it can lead.
func TestSharesOfDifferentCandidates(t *testing.T) {
	all := fleet(5, 90)
	few, many := all[0].elections[:10], all[0].elections[10:]
	for i, m := range all {
		if m.elections = many; i < 2 {
			m.elections = few
		}
	}
	loads := loadsOf(owners(all))
	for id, share := range map[string]float64{"web-0": 5, "web-1": 5, "web-2": 80. / 3, "web-3": 80. / 3, "web-4": 80. / 3} {
		require.InDelta(t, share, loads[id], 1.5, id)
	}

	all = fleet(5, 90) // each election has three candidates of five, in turn
	every := slices.Clone(all[0].elections)
	for i, m := range all {
		m.elections = nil
		for n, e := range every {
			if (n+i)%5 < 3 {
				m.elections = append(m.elections, e)
			}
		}
	}
	for id, load := range loadsOf(owners(all)) {
		require.InDelta(t, 18, load, 3, id)
	}
}

// A member with a third of each of three elections has room for one.
func TestThreeThirdsAreWhole(t *testing.T) {
	all := fleet(4, 3)
	for i, own := range [][]int{{1, 2}, {0, 1, 2}, {0}, {0, 1, 2}} {
		var elections []string
		for _, n := range own {
			elections = append(elections, all[i].elections[n])
		}
		all[i].elections = elections
	}
	require.Equal(t, map[string]int{"web-1": 1, "web-2": 1, "web-3": 1}, loadsOf(owners(all)))
}

// The data of other programs, and of the same member twice, do not make a member.
func TestUpdate(t *testing.T) {
	at := time.Unix(1000, 0)
	data := []byte(dataOf([]*entry{{hash: "b"}, {hash: "a"}}))
	first := update(nil, []group.Member{{ID: "one", Data: data}, {ID: "other", Data: []byte("12")}, {ID: "none"}, {ID: "old", Data: []byte("elections")}}, at)
	require.Equal(t, []*member{{id: "one", elections: []string{"a", "b"}, since: at}, {id: "old", since: at}}, first)
	later := at.Add(time.Minute)
	second := update(first, []group.Member{{ID: "two", Data: data}, {ID: "one", Data: []byte("elections a a")}}, later)
	require.Equal(t, []*member{{id: "two", elections: []string{"a", "b"}, since: later}, {id: "one", elections: []string{"a"}, since: at}}, second)
	require.Equal(t, second[1:], olderThan(59*time.Second, second, later))
	require.Empty(t, olderThan(time.Minute, second, later))
}

// A draining process asks the candidates of the highest priority first, among these the owner and then the oldest, and finally
// candidates without a znode at the moment. It does not ask processes that drain, or that have no candidate in the election.
func TestSuccessors(t *testing.T) {
	at := time.Unix(1000, 0)
	var members []*member
	for i, id := range []string{"young", "owner", "old", "draining", "other", "high", "joining"} {
		members = append(members, &member{id: id, elections: []string{"e"}, since: at.Add(-time.Duration(i) * time.Minute)})
	}
	find(members, "draining").elections, find(members, "other").elections = nil, []string{"f"}
	var participants []recipes.Participant
	for _, id := range []string{"young", "self", "foreign", "old", "owner", "draining", "other"} {
		participants = append(participants, recipes.Participant{ID: id, Priority: -3})
	}
	participants = append(participants, recipes.Participant{ID: "high", Priority: -2})
	require.Equal(t, []string{"high", "owner", "old", "young", "joining"}, successors(members, "e", "owner", participants))
	require.Equal(t, []string{"other"}, successors(members, "f", "owner", participants))
	require.Empty(t, successors(nil, "e", "owner", participants))
}
