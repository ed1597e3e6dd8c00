package spread

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
)

// member is a process of the Spread, as read from the group.
type member struct {
	id        string
	elections []string  // hashes of the elections in which it has a candidate; none while it drains
	since     time.Time // when this process first saw the member, by its own clock
}

// mark begins the data of a member, so that the data of other programs is not taken for one.
const mark = "elections"

// dataOf returns the data of a member with candidates in some elections.
func dataOf(elections []*entry) string {
	words := []string{mark}
	for _, e := range elections {
		words = append(words, e.hash)
	}
	return strings.Join(words, " ")
}

// update returns the members in a list of the group. Those that were there before keep their age.
func update(before []*member, list []group.Member, now time.Time) (members []*member) {
	for _, listed := range list {
		words := strings.Fields(string(listed.Data))
		if len(words) == 0 || words[0] != mark {
			continue
		}
		m := &member{id: listed.ID, elections: slices.Compact(slices.Sorted(slices.Values(words[1:]))), since: now}
		if known := find(before, m.id); known != nil {
			m.since = known.since
		}
		members = append(members, m)
	}
	return members
}

// find returns the member with an id, nil if there is none.
func find(members []*member, id string) *member {
	if i := slices.IndexFunc(members, func(m *member) bool { return m.id == id }); i >= 0 {
		return members[i]
	}
	return nil
}

// olderThan returns the members that were seen for longer than age. A member that is older than two session timeouts was alive
// for one of them at least, because the session of a process that dies earlier is over by then.
func olderThan(age time.Duration, members []*member, now time.Time) []*member {
	return slices.DeleteFunc(slices.Clone(members), func(m *member) bool { return now.Sub(m.since) <= age })
}

// owners returns the id of the member that should lead each election: one of those with a candidate. The result is the same for the same
// members in any order, so that all processes agree.
//
// This is rendezvous hashing with bounded loads. The candidate with the highest score that has room gets the election. The fair share of a
// member is the sum of 1/n over its elections, where n is the number of candidates. A member has room for its share rounded down, and as
// many members as necessary for their share rounded up. If no candidate has room, the one with the least excess gets the election. So if
// all members have candidates in the same elections, their loads differ by one at most.
func owners(members []*member) map[string]string {
	members = slices.SortedFunc(slices.Values(members), func(a, b *member) int { return strings.Compare(a.id, b.id) })
	candidates := map[string][]int{} // the indexes of the members with a candidate, by election
	var elections []string
	for i, m := range members {
		for _, e := range m.elections {
			if candidates[e] == nil {
				elections = append(elections, e)
			}
			candidates[e] = append(candidates[e], i)
		}
	}
	slices.Sort(elections)
	room := make([]int64, len(members)) // the share, first in units of 1<<-32, less the assigned elections
	for _, e := range elections {
		for _, i := range candidates[e] {
			room[i] += (1<<32-1)/int64(len(candidates[e])) + 1 // rounded up, so that the shares of a whole number add up to it
		}
	}
	spare := int64(len(elections)) // how many shares may still be rounded up
	for i := range room {
		room[i] >>= 32
		spare -= room[i]
	}
	owner := make(map[string]string, len(elections))
	for _, e := range elections {
		excess := func(i int) int64 {
			if room[i] > 0 || room[i] == 0 && spare > 0 {
				return 0
			}
			return 1 - room[i]
		}
		best := slices.MinFunc(candidates[e], func(a, b int) int {
			return cmp.Or(cmp.Compare(excess(a), excess(b)), strings.Compare(hash(e+members[b].id), hash(e+members[a].id)))
		})
		if room[best]--; room[best] < 0 {
			spare--
		}
		owner[e] = members[best].id
	}
	return owner
}

// successors returns the ids of the members with a candidate in an election that a draining process asks to lead, one after the other: those
// of the highest priority first, of these the owner, and then the oldest. Candidates that do not take part follow last, because a candidate
// has no znode for a moment while it joins again.
func successors(members []*member, election, owner string, participants []recipes.Participant) (ids []string) {
	rank := func(m *member) int {
		i := slices.IndexFunc(participants, func(p recipes.Participant) bool { return p.ID == m.id })
		switch {
		case i < 0:
			return math.MinInt
		case m.id == owner:
			return 2*participants[i].Priority + 1
		default:
			return 2 * participants[i].Priority
		}
	}
	for _, m := range slices.SortedFunc(slices.Values(members), func(a, b *member) int {
		return cmp.Or(cmp.Compare(rank(b), rank(a)), a.since.Compare(b.since))
	}) {
		if slices.Contains(m.elections, election) {
			ids = append(ids, m.id)
		}
	}
	return ids
}

// hash returns 64 bits of a hash, as text.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
