package judge_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/judge"
)

// sound is a record without a breach: each term begins when the previous one ends.
func sound() []judge.Term {
	var record []judge.Term
	for i := range 10 {
		record = append(record, judge.Term{Token: int64(100 + i), From: time.Duration(i) * time.Second, To: time.Duration(i+1) * time.Second})
	}
	return record
}

func breach(rule judge.Rule, before, next int, by time.Duration) judge.Breach {
	return judge.Breach{Rule: rule, Before: before, Next: next, By: by}
}

func TestSoundRecord(t *testing.T) {
	require.Empty(t, judge.Terms(sound(), 0))
	record := sound()
	slices.Reverse(record)
	require.Empty(t, judge.Terms(record, 0), "in any order")
	require.Empty(t, judge.Terms(nil, 0))
}

// Each rule can be broken, and has its own error.
func TestPlantedBreaches(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(record []judge.Term)
		want  []judge.Breach
	}{
		"a term that ends late": {
			func(r []judge.Term) { r[4].To += time.Millisecond },
			[]judge.Breach{breach(judge.Exclusion, 4, 5, time.Millisecond)},
		},
		"a term that outlasts two": {
			func(r []judge.Term) { r[4].To += 1500 * time.Millisecond },
			[]judge.Breach{breach(judge.Exclusion, 4, 5, 1500*time.Millisecond), breach(judge.Exclusion, 4, 6, 500*time.Millisecond)},
		},
		"a term that never ends": {
			func(r []judge.Term) { r[4].To = judge.Open },
			[]judge.Breach{breach(judge.Ends, 4, 4, 0)},
		},
		"a token that comes again": {
			func(r []judge.Term) { r[5].Token = r[4].Token },
			[]judge.Breach{breach(judge.OneToken, 4, 5, time.Second)},
		},
		"a token that comes late": {
			func(r []judge.Term) { r[7].Token = 50 },
			[]judge.Breach{breach(judge.Order, 0, 7, 7*time.Second)},
		},
		"two tokens that change places": {
			func(r []judge.Term) { r[4].Token, r[5].Token = r[5].Token, r[4].Token },
			[]judge.Breach{breach(judge.Order, 4, 5, time.Second)},
		},
		"two that come behind a later one": { // neither hides the other
			func(r []judge.Term) { r[3].Token, r[4].Token, r[5].Token = 105, 103, 104 },
			[]judge.Breach{breach(judge.Order, 3, 4, time.Second), breach(judge.Order, 3, 5, 2*time.Second)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			record := sound()
			c.plant(record)
			require.Equal(t, c.want, judge.Terms(record, 0))
			for _, breach := range c.want {
				require.NotEmpty(t, breach.String())
			}
		})
	}
}

func TestWindow(t *testing.T) {
	record := sound()
	record[0].To = time.Minute
	require.Len(t, judge.Terms(record, 0), 9)
	require.Len(t, judge.Terms(record, 3), 3)
}

// Random records are judged as every pair of their terms would be.
func TestEveryPairIsJudged(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for range 500 {
		record := make([]judge.Term, 1+random.IntN(12))
		for i := range record {
			from := time.Duration(random.IntN(20))
			record[i] = judge.Term{Token: int64(random.IntN(20)), From: from, To: from + time.Duration(1+random.IntN(5))}
		}
		slices.SortFunc(record, func(a, b judge.Term) int {
			return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Token, b.Token))
		})
		overlaps, backwards := countBreaches(record)
		for _, breach := range judge.Terms(record, 0) {
			if breach.Rule == judge.Exclusion {
				overlaps--
			} else {
				backwards--
			}
		}
		require.Zero(t, overlaps, record)
		require.Zero(t, backwards, record)
	}
}

// countBreaches looks at every pair of terms.
func countBreaches(record []judge.Term) (overlaps, backwards int) {
	for i, next := range record {
		isLate := false
		for _, before := range record[:i] {
			if before.To > next.From {
				overlaps++
			}
			isLate = isLate || before.Token >= next.Token
		}
		if isLate {
			backwards++
		}
	}
	return overlaps, backwards
}

func TestHolders(t *testing.T) {
	var holders judge.Holders[string]
	standing := map[string]bool{"a": true, "b": true, "c": true}
	stands := func(who string) bool { return standing[who] }
	require.Empty(t, holders.Grant("a", stands))
	require.Equal(t, []string{"a"}, holders.Grant("b", stands))
	standing["a"] = false
	require.Equal(t, []string{"b"}, holders.Grant("c", stands))
	standing["b"], standing["c"] = false, false
	require.Empty(t, holders.Grant("d", stands))
}

func TestTokens(t *testing.T) {
	var tokens judge.Tokens[string]
	require.Zero(t, tokens.Highest())
	for _, grant := range []struct {
		token  int64
		who    string
		before string // "": it grows
	}{{5, "a", ""}, {9, "b", ""}, {7, "c", "b"}, {6, "d", "c"}, {9, "e", "b"}, {10, "f", ""}} {
		before, grows := tokens.Grant(grant.token, grant.who)
		require.Equal(t, grant.before == "", grows, grant.who)
		require.Equal(t, grant.before, before, grant.who)
	}
	require.EqualValues(t, 10, tokens.Highest())
}

func TestStore(t *testing.T) {
	var store judge.Store
	for _, write := range []struct {
		token int64
		taken bool
	}{{5, true}, {5, true}, {9, true}, {8, false}, {9, true}, {1, false}} {
		require.Equal(t, write.taken, store.Write(write.token), write.token)
	}
	require.EqualValues(t, 9, store.Highest())
	require.Equal(t, 2, store.Stale())
}

func TestSection(t *testing.T) {
	var section judge.Section
	for token := range int64(3) {
		section.Enter(token + 1)
		section.Leave()
	}
	require.NoError(t, section.Err())
	require.Equal(t, 3, section.Entered())

	section.Enter(4)
	section.Enter(5)
	require.EqualError(t, section.Err(), "2 holders at once, one with token 5")

	var stale judge.Section
	for _, token := range []int64{2, 1} {
		stale.Enter(token)
		stale.Leave()
	}
	require.EqualError(t, stale.Err(), "holder 2 has token 1, which is not higher than that of holder 1")
}
