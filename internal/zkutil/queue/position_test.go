package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPositionOf(t *testing.T) {
	behindWriter := func(queue []Contender, own int) int { // as readers wait: for the nearest writer
		for i := own - 1; i >= 0; i-- {
			if queue[i].HasMarker("w-") {
				return i
			}
		}
		return -1
	}
	r, w := "r-", "w-"
	for name, test := range map[string]struct {
		rule       Rule
		queue      []string // the markers; own is the last
		first      string   // the number of the first; "": 0000000000
		alwaysList bool
		blocker    int
		want       position
	}{
		"first":                               {rule: Exclusive, queue: []string{w}, blocker: -1, want: position{isFirst: true}},
		"behind the first":                    {rule: Exclusive, queue: []string{w, w}, blocker: 0, want: position{turn: turnAfterBlocker, isBehind: true}},
		"behind several":                      {rule: Exclusive, queue: []string{w, w, w}, blocker: 1, want: position{turn: turnAfterAll, isBehind: true}},
		"with AlwaysList":                     {rule: Exclusive, queue: []string{w, w}, alwaysList: true, blocker: 0, want: position{turn: turnNear, isBehind: true}},
		"behind several, AlwaysList":          {rule: Exclusive, queue: []string{w, w, w}, alwaysList: true, blocker: 1, want: position{isBehind: true}},
		"behind a negative number":            {rule: Exclusive, queue: []string{w, w}, first: "-000000001", blocker: 0, want: position{turn: turnNear, isBehind: true}},
		"a negative number ahead":             {rule: Exclusive, queue: []string{w, w, w}, first: "-000000001", blocker: 1, want: position{isBehind: true}},
		"reader among readers":                {rule: behindWriter, queue: []string{r, r}, blocker: -1, want: position{}},
		"reader behind a writer":              {rule: behindWriter, queue: []string{w, r, r}, blocker: 0, want: position{turn: turnAfterBlocker}},
		"reader behind a reader and a writer": {rule: behindWriter, queue: []string{r, w, r, r}, blocker: 1, want: position{turn: turnAfterAll}},
		"reader, AlwaysList":                  {rule: behindWriter, queue: []string{w, r, r}, alwaysList: true, blocker: 0, want: position{turn: turnNear}},
	} {
		t.Run(name, func(t *testing.T) {
			var names []string
			for i, marker := range test.queue {
				number := "000000000" + string(rune('0'+i))
				if i == 0 && test.first != "" {
					number = test.first
				}
				names = append(names, marker+number)
			}
			contenders := parseContenders(names, []string{r, w})
			require.Len(t, contenders, len(names))
			q := Queue{Rule: test.rule, AlwaysList: test.alwaysList}
			got, blocker := q.positionOf(contenders, len(contenders)-1)
			require.Equal(t, test.blocker, blocker)
			require.Equal(t, test.want, got)
		})
	}
}

func TestDecisionsByPosition(t *testing.T) {
	for at, want := range map[turn]struct{ needsNoListing, hasOnlyBlocker, isTurnNear bool }{
		turnAtListing:    {},
		turnNear:         {isTurnNear: true},
		turnAfterAll:     {needsNoListing: true},
		turnAfterBlocker: {needsNoListing: true, hasOnlyBlocker: true, isTurnNear: true},
	} {
		p := position{turn: at}
		require.Equal(t, want.needsNoListing, p.needsNoListing(), at)
		require.Equal(t, want.hasOnlyBlocker, p.hasOnlyBlocker(), at)
		require.Equal(t, want.isTurnNear, p.isTurnNear(), at)
	}
}
