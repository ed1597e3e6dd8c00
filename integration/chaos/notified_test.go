package chaos

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A fault excuses the missing notification of a waiter only while it lasts, and for some time after that. A later
// notification is no excuse.
func TestNoNotificationInQuietTimes(t *testing.T) {
	const later = 20 * second
	h := told(10)
	for i := range h.Events {
		if h.Events[i].Token >= 105 {
			h.Events[i].At += later
			h.Events[i].Wall += later / ms
		}
	}
	for _, l := range h.Lives[5:] {
		l.Gone += later / ms
	}
	granted := h.event(Granted, 105).At
	first, proc := granted-later, h.event(Granted, 105).Proc
	cut := func(from, to int64) Fault { return Fault{Kind: "connection cut", Proc: proc, From: from, To: to} }
	for name, tt := range map[string]struct {
		faults  []Fault
		excused bool
	}{
		"quiet at the end":                         {[]Fault{cut(first, first+1)}, false},
		"quiet before the rescue":                  {[]Fault{cut(granted-1, granted)}, false},
		"quiet in the middle":                      {[]Fault{cut(first, first+1), cut(granted-1, granted)}, false},
		"a fault all the time":                     {[]Fault{cut(first, granted-second)}, true},
		"one fault after the other":                {[]Fault{cut(first, first+1), cut(first+7*second, first+8*second), cut(first+14*second, granted)}, true},
		"the quorum was stalled":                   {[]Fault{{Kind: stalled, From: first + second, To: granted - second}}, true},
		"the quorum was stalled, and then was not": {[]Fault{{Kind: stalled, From: first, To: first + 5*second}}, false},
		"the servers'":                             {[]Fault{{Kind: "leader killed", From: first, To: granted - second}}, true},
		"a moment without time now and then": {[]Fault{
			{Kind: starved, Proc: proc, From: first + 7*second, To: first + 7*second + 100*ms},
			{Kind: starved, Proc: proc, From: first + 14*second, To: first + 14*second + 100*ms},
		}, false},
		"another process's":          {[]Fault{{Kind: "connection cut", Proc: proc%4 + 1, From: first, To: granted}}, false},
		"the end of another's znode": {[]Fault{{Kind: deleteZnode, Znode: "/another", From: first, To: granted}}, false},
	} {
		h.Faults = tt.faults
		if tt.excused {
			require.Empty(t, Judge(h).Violations, name)
		} else {
			require.Contains(t, fmt.Sprint(Judge(h).Violations), "was not told", name)
		}
	}
}

// A contender for several locks as one has his turn at the first when he has that, also if he never has the others.
func TestPartOfSeveralLocks(t *testing.T) {
	const patient, late = 20 * second, 12 * second
	for name, tt := range map[string]struct {
		part    int64 // 0: never
		granted bool
		late    bool
	}{
		"in time, and the others late":         {patient + second, true, false},
		"in time, and the others never":        {patient + second, false, false},
		"late, and the others at once":         {patient + late, true, true},
		"never, and the znode goes in the end": {0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := told(10)
			if tt.granted {
				h.lease(1, 200, patient+late, patient+late+second)
			} else {
				h.Lives = append(h.Lives, &Life{
					Path: fencedPath + "/znode-200", Token: 200, Gone: (patient + late) / ms, GoneBy: 2001, End: Deleted, Session: 1,
				})
			}
			l := h.Lives[len(h.Lives)-1]
			l.Created = patient / ms
			all := h.Events
			for _, znode := range []string{l.Path, ""} { // a basket records no znode
				if tt.part != 0 {
					h.Events = append(slices.Clip(all), Event{What: Part, By: "p1", Proc: 1, Path: fencedPath, Token: 200, Znode: znode, At: tt.part})
				}
				violations := fmt.Sprint(Judge(h).Violations)
				if tt.late {
					require.Contains(t, violations, "was not told")
				} else {
					require.Equal(t, "[]", violations)
				}
			}
		})
	}
}

// The quorum counts as stalled if no server committed promptly for a while.
func TestStalls(t *testing.T) {
	const late = int64(pulseLate)
	every := func(from, to, took int64) (beats []beat) {
		for at := from; at < to; at += int64(pulseEvery) {
			beats = append(beats, beat{at, at + took})
		}
		return beats
	}
	stall := func(from, to int64) []Fault { return []Fault{{Kind: stalled, From: from, To: to}} }
	within := func(from, to int64, beats ...[]beat) []Fault { return stalls(slices.Concat(beats...), from, to) }
	require.Empty(t, within(0, late))
	require.Empty(t, within(0, 10*second, every(0, 10*second, 5*ms)))
	require.Empty(t, within(0, 10*second, every(0, 10*second, 5*ms), every(0, 10*second, 3*second)), "another server is prompt")
	require.Empty(t, within(0, 2*second, every(0, second, 5*ms), every(second+late/2, 2*second, 5*ms)), "a short pause")
	first := every(0, second, 5*ms)
	last := first[len(first)-1].answered
	require.Equal(t, stall(last, 6*second+5*ms), within(0, 7*second, first, every(second, 6*second, late+1), every(6*second, 7*second, 5*ms)), "late commits")
	require.Equal(t, stall(last, 6*second+5*ms), within(0, 7*second, first, every(6*second, 7*second, 5*ms)), "none")
	require.Equal(t, stall(last, 7*second), within(0, 7*second, first), "none to the end")
	require.Equal(t, stall(0, 6*second+5*ms), within(0, 7*second, every(6*second, 7*second, 5*ms)), "none from the beginning on")
}
