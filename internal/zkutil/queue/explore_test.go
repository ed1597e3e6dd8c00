package queue

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
)

// pinned is an exploration of the shipping code with the number of states that it visits. A change that adds or removes behaviour shows in
// the number.
type pinned struct {
	cast
	states  int
	isLong  bool // left out of the short form
	isNight bool // with -exhaustive only
}

// In no course of events within these bounds is a waiter granted while a contender that excludes the waiter exists, or after the waiter's
// znode was deleted before its turn, or as the first while another is ahead. From every state, each course without further faults ends, and
// no contender still waits at its end.
func TestExplore(t *testing.T) {
	all := []fault{reset, distrust, remove}
	met := &reached{map[step]bool{}, map[core.Verdict]bool{}}
	for name, e := range map[string]pinned{
		"two, one fault":                  {cast: cast{kinds: "ww", sessions: []int{0, 1}, rule: Exclusive, faults: all, most: 1}, states: 53644},
		"two, two faults":                 {cast: cast{kinds: "ww", sessions: []int{0, 1}, rule: Exclusive, faults: all, most: 2}, states: 657812, isLong: true},
		"three, with slow goroutines":     {cast: cast{kinds: "www", sessions: []int{0, 0, 1}, rule: Exclusive, joined: 3, faults: all, most: 1, isSlow: true}, states: 637820, isLong: true},
		"two with slow goroutines":        {cast: cast{kinds: "ww", sessions: []int{0, 1}, rule: Exclusive, faults: all, most: 1, isSlow: true}, states: 61624},
		"three, no fault":                 {cast: cast{kinds: "www", sessions: []int{0, 1, 2}, rule: Exclusive, joined: 3}, states: 15804},
		"three, one fault":                {cast: cast{kinds: "www", sessions: []int{0, 1, 2}, rule: Exclusive, joined: 3, faults: all, most: 1}, states: 1815348, isNight: true},
		"a try, one fault":                {cast: cast{kinds: "wt", sessions: []int{0, 1}, rule: Exclusive, faults: all, most: 1}, states: 37274},
		"two of one session, one fault":   {cast: cast{kinds: "ww", sessions: []int{0, 0}, rule: Exclusive, faults: all, most: 1}, states: 11623},
		"three, a reconnect":              {cast: cast{kinds: "www", sessions: []int{0, 0, 1}, rule: Exclusive, joined: 3, faults: []fault{reset}, most: 1}, states: 35082},
		"three, two of one session":       {cast: cast{kinds: "www", sessions: []int{0, 1, 1}, rule: Exclusive, joined: 3}, states: 2452},
		"three of two sessions":           {cast: cast{kinds: "www", sessions: []int{0, 0, 1}, rule: Exclusive, joined: 3, faults: all, most: 1}, states: 387160, isLong: true},
		"three of two sessions, turned":   {cast: cast{kinds: "www", sessions: []int{0, 1, 1}, rule: Exclusive, joined: 3, faults: all, most: 1}, states: 216381, isLong: true},
		"a writer and two readers":        {cast: cast{kinds: "wrr", sessions: []int{0, 1, 1}, rule: ReadWrite, joined: 3, faults: all, most: 1}, states: 301596, isLong: true},
		"two readers and a writer":        {cast: cast{kinds: "rrw", sessions: []int{0, 0, 1}, rule: ReadWrite, joined: 3, faults: all, most: 1}, states: 872535, isLong: true},
		"a reader between writers":        {cast: cast{kinds: "wrw", sessions: []int{0, 1, 0}, rule: ReadWrite, joined: 3, faults: all, most: 1}, states: 475889, isLong: true},
		"a reader under a writer, behind": {cast: cast{kinds: "wuw", sessions: []int{0, 0, 1}, rule: ReadWrite}, states: 32012},
		"a reader under it, one fault":    {cast: cast{kinds: "wuw", sessions: []int{0, 0, 1}, rule: ReadWrite, faults: all, most: 1}, states: 2099222, isNight: true},
		"the same reader behind it":       {cast: cast{kinds: "wuw", sessions: []int{0, 0, 1}, rule: ReadWrite, faults: all, most: 1, isLate: true}, states: 2100817, isNight: true},
		"two tries for one permit":        {cast: cast{kinds: "tt", sessions: []int{0, 1}, rule: UpTo(1), permits: 1, faults: all, most: 1}, states: 20904},
		"three tries for two permits":     {cast: cast{kinds: "ttt", sessions: []int{0, 0, 1}, rule: UpTo(2), permits: 2}, states: 151520, isLong: true},
		"the same, one fault":             {cast: cast{kinds: "ttt", sessions: []int{0, 1, 1}, rule: UpTo(2), permits: 2, faults: all, most: 1}, states: 5873670, isNight: true},
		"four tries for two permits":      {cast: cast{kinds: "tttt", sessions: []int{0, 0, 1, 1}, rule: UpTo(2), permits: 2}, states: 9320589, isNight: true},
		"four, no fault":                  {cast: cast{kinds: "wwww", sessions: []int{0, 1, 0, 1}, rule: Exclusive, joined: 4}, states: 25704},
		"three of two sessions, twice":    {cast: cast{kinds: "www", sessions: []int{0, 0, 1}, rule: Exclusive, joined: 3, faults: all, most: 2}, states: 10755400, isNight: true},
	} {
		if (testing.Short() || testkit.IsRaced) && e.isLong || e.isNight && !*testkit.Exhaustive {
			continue
		}
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			e.reached = met
			s := explore(&e.cast)
			require.Empty(t, s.wrong, s.course)
			states := len(s.parents)
			t.Logf("%d states, %d with a hold, %v", states, s.grants, time.Since(began))
			require.Equal(t, e.states, states, "states")
		})
	}
	for next := stepList; next <= stepClaim; next++ {
		require.True(t, met.steps[next], "step %d is never chosen", next)
	}
	for _, v := range []core.Verdict{core.Granted, core.Unproven, core.Stale, core.Deleted} {
		require.True(t, met.verdicts[v], "verdict %d is never given", v)
	}
}

// In no random walk of up to four contenders of three sessions, with up to eight faults, is a contender granted against the conditions of
// TestExplore, or left waiting at the end.
func TestWalks(t *testing.T) {
	walks, first, steps := uint64(20_000), uint64(45), 0
	switch {
	case *testkit.Exhaustive:
		walks, first = 5_000_000, rand.Uint64()
	case testing.Short() || testkit.IsRaced:
		walks = 1000
	}
	for seed := range walks {
		random := rand.New(rand.NewPCG(first, seed))
		wrong, taken := walk(drawCast(random), random)
		require.Empty(t, wrong, "seeds %d and %d:\n%s", first, seed, taken)
		steps += len(taken.events)
	}
	t.Logf("%d walks, %d steps", walks, steps)
}

// Walks find wrong premises, too. Those that are left out need more walks, because their courses need two events at the right time, or have no
// end.
func TestWalksFindWrongPremises(t *testing.T) {
	for _, p := range []premise{ignoresOwn, ignoresOwnEvent, ignoresTrust, neverLists, allAreFirst, writersNeedNoList, losesWatches} {
		t.Run(string(p), func(t *testing.T) {
			for seed := uint64(0); ; seed++ {
				require.Less(t, seed, uint64(10_000), "walks")
				random := rand.New(rand.NewPCG(45, seed))
				c := drawCast(random)
				c.premise = p
				if wrong, taken := walk(c, random); wrong != "" {
					t.Logf("%s, by walk %d:\n%s", wrong, seed, taken)
					return
				}
			}
		})
	}
}

// The wrong premises that the explorer finds.
const (
	ignoresOwn        premise = "a waiter takes its turn without its own znode"
	ignoresOwnEvent   premise = "an event of the own znode does not matter"
	ignoresEpoch      premise = "what one server showed holds on another"
	ignoresTrust      premise = "a grant needs no proof"
	neverLists        premise = "nobody is between a blocker and the head"
	allAreFirst       premise = "each blocker was the first of its queue"
	writersNeedNoList premise = "no reader comes ahead of a writer"
	outerStays        premise = "a writer's znode stays while its owner creates a reader's"
	losesWatches      premise = "a new connection has the watches of the old"
	oneMoreFits       premise = "contenders ahead that don't hold yet take no permit"
	polls             premise = "a waiter may list again until it has its turn"
)

// Each premise breaks what it is there for.
func TestExploreFindsWrongPremises(t *testing.T) {
	all := []fault{reset, distrust, remove}
	for p, test := range map[premise]struct {
		cast
		wrong  string // part of the violation
		isLong bool   // left out of the short form
	}{
		ignoresOwn:        {cast: cast{kinds: "ww", sessions: []int{0, 1}, rule: Exclusive, faults: all, most: 1}, wrong: "deleted before"},
		ignoresOwnEvent:   {cast: cast{kinds: "ww", sessions: []int{0, 1}, rule: Exclusive, faults: all, most: 1}, wrong: "deleted before"},
		ignoresEpoch:      {cast: cast{kinds: "www", sessions: []int{0, 1, 1}, rule: Exclusive, joined: 3, faults: []fault{reset, remove}, most: 2}, wrong: "deleted before", isLong: true},
		ignoresTrust:      {cast: cast{kinds: "ww", sessions: []int{0, 0}, rule: Exclusive, faults: []fault{distrust}, most: 1}, wrong: "has expired"},
		neverLists:        {cast: cast{kinds: "www", sessions: []int{0, 1, 2}, rule: Exclusive, joined: 3, faults: []fault{remove}, most: 1}, wrong: "exists"},
		allAreFirst:       {cast: cast{kinds: "www", sessions: []int{0, 1, 2}, rule: Exclusive, joined: 3, faults: []fault{remove}, most: 1}, wrong: "exists"},
		writersNeedNoList: {cast: cast{kinds: "wuw", sessions: []int{0, 0, 1}, rule: ReadWrite}, wrong: "exists"},
		outerStays:        {cast: cast{kinds: "wuw", sessions: []int{0, 0, 1}, rule: ReadWrite, faults: []fault{remove}, most: 1}, wrong: "holds", isLong: true},
		oneMoreFits:       {cast: cast{kinds: "ttt", sessions: []int{0, 0, 1}, rule: UpTo(2), permits: 2}, wrong: "exists"},
		polls:             {cast: cast{kinds: "ww", sessions: []int{0, 1}, rule: Exclusive}, wrong: neverEnds},
		losesWatches:      {cast: cast{kinds: "ww", sessions: []int{0, 1}, rule: Exclusive, faults: []fault{reset}, most: 1}, wrong: stuck},
	} {
		if testkit.IsRaced || testing.Short() && test.isLong { // many states
			continue
		}
		t.Run(string(p), func(t *testing.T) {
			test.premise = p
			s := explore(&test.cast)
			require.Contains(t, s.wrong, test.wrong, "in %d states", len(s.parents))
			t.Logf("found in %d states\n%s", len(s.parents), s.course)
			printed, err := play(s.course.String(), test.premise)
			require.NoError(t, err)
			t.Log(printed)
			if test.wrong != stuck && test.wrong != neverEnds { // which no single event shows
				require.Contains(t, printed, "VIOLATION: "+s.wrong)
			}
		})
	}
}
