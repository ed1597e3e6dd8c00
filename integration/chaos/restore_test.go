package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// twice is a history of two eras of twenty leases, with the same tokens and znodes of other names. In between an attempt waits.
func twice() *History {
	h := told(20)
	until := 30 * second
	first := &Life{Path: fencedPath + "/of-the-backup", Token: 50, Created: 1, Gone: until/ms + 4000, GoneBy: 1005, End: Expired}
	h.Former = []Era{{Until: until, Lives: h.Lives}}
	h.Lives = []*Life{first}
	h.Faults = []Fault{{Kind: restored, From: 21 * second, To: until + 3*second}}
	for i := range 20 {
		at := until + 5*second + int64(i)*second
		h.lease(i%4+1, int64(100+i), at, at+900*ms)
		l, znode := h.Lives[len(h.Lives)-1], fencedPath+"/again-"+string(rune('a'+i))
		l.Path = znode
		for j := range h.Events {
			if e := &h.Events[j]; e.What == Granted && e.At == at {
				e.Znode = znode
			}
			if e := &h.Events[j]; e.At >= until {
				e.Try = int(e.Token) + 1000
			}
			if e := &h.Events[j]; e.What == Wrote && e.At >= until && e.Value < 1000 {
				e.Value += 1000
			}
		}
	}
	return h
}

func TestJudgeBeginsAnewAfterARestore(t *testing.T) {
	h := twice()
	v := Judge(h)
	require.Empty(t, v.Violations)
	require.Equal(t, 40, v.Leases[fencedPath])
	require.Empty(t, Linearize(h))

	h.Former = nil
	require.NotEmpty(t, Judge(h).Violations, "tokens that begin again without a restore")
	require.NotEmpty(t, Linearize(h))
}

func TestJudgeJudgesEachEra(t *testing.T) {
	for name, plant := range map[string]func(h *History){
		"an overlap before":                func(h *History) { h.Events[event(h, Ended, 105, 0)].At += second },
		"an overlap after":                 func(h *History) { h.Events[event(h, Ended, 105, 30*second)].At += second },
		"a grant beside one of the backup": func(h *History) { h.Lives[0].Gone += 4000 },
		"a token that is lower, in an era": func(h *History) { h.Lives[5].Token, h.Events[event(h, Granted, 104, 30*second)].Token = 90, 90 },
		"a context that outlives the restore": func(h *History) {
			h.Events[event(h, Ended, 119, 0)].Text = "none"
			h.Events[event(h, Ended, 119, 0)].At = 31 * second
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := twice()
			plant(h)
			require.NotEmpty(t, Judge(h).Violations)
		})
	}
}

// event is where the first event of a kind and token stands, from a time on.
func event(h *History, what What, token, from int64) int {
	for i, e := range h.Events {
		if e.What == what && e.Token == token && e.At >= from {
			return i
		}
	}
	return -1
}

func TestAttemptsBelongToTheEraOfTheirEnd(t *testing.T) {
	h := twice()
	h.Events = append([]Event{{At: 20 * second, What: Called, By: "p9", Proc: 9, Path: fencedPath, Try: 1, Text: byTry}}, h.Events...)
	h.Events = append(h.Events, Event{At: 60 * second, What: Failed, By: "p9", Proc: 9, Path: fencedPath, Try: 1, Text: recipes.ErrNotAcquired.Error()})
	eras := h.eras()
	require.Len(t, eras, 2)
	require.Equal(t, Called, eras[1].Events[0].What)
	require.Equal(t, "p9", eras[1].Events[0].By)
	require.Empty(t, Judge(h).Violations)
	require.Same(t, h.Lives[0], h.eraAt(40 * second).Lives[0])
	require.Equal(t, h.Former[0].Lives, h.eraAt(29*second).Lives)
}
