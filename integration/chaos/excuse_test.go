package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// What somebody else does behind the holder's back is counted, not held against it.
func TestExcuses(t *testing.T) {
	for kind, end := range map[string]End{pauseClient: Deleted, expireSession: Closed, deleteZnode: Robbed} {
		t.Run(kind, func(t *testing.T) {
			h := told(10)
			h.Lives[5].End = end
			late := h.event(Ended, 105)
			at := late.At
			late.At += second
			h.Faults = []Fault{{Kind: kind, Proc: late.Proc, Znode: fencedPath + "/znode-105", From: at - 2*ms, To: at + second}}
			v := Judge(h)
			require.Empty(t, v.Violations)
			require.Equal(t, 1, v.Excused[kind])

			another := h.Faults[0]
			another.Proc, another.Znode = late.Proc%4+1, "/another"
			h.Faults[0], another = another, h.Faults[0]
			require.NotEmpty(t, Judge(h).Violations, "it hit somebody else")
			h.Faults[0] = another

			h.Faults[0].From, h.Faults[0].To = at+2*second, at+3*second
			require.NotEmpty(t, Judge(h).Violations, "it came later")
			h.Faults[0].From, h.Faults[0].To = at-20*second, at-10*second
			if kind == pauseClient {
				require.NotEmpty(t, Judge(h).Violations, "it was long ago")
				return
			}
			require.Empty(t, Judge(h).Violations, "it was asked for long before it was done")
			h.Lives[5].End = Deleted
			require.NotEmpty(t, Judge(h).Violations, "it hit nothing")
			h.Lives[5].End = end
			late.At += 4 * second
			require.NotEmpty(t, Judge(h).Violations, "there was time to hear of it")
		})
	}
}

// A pause for less than the session excuses what falls into the time in which the process did not run, and nothing later;
// moved bounds, slow disks and slow handshakes excuse no two holders at all.
func TestNewFaultsExcuseNoTwoHolders(t *testing.T) {
	plant := func(kind string, woken int64, asleep bool) *History {
		h := told(10)
		h.Lives[5].End = Expired
		end := h.event(Ended, 105)
		next := h.event(Granted, 106).At
		end.Text, end.At = recipes.ErrSessionLost.Error(), next+second
		proc := end.Proc
		if kind != pauseBriefly && kind != "slow handshakes" {
			proc = 0
		}
		h.Faults = []Fault{{Kind: kind, Proc: proc, From: next - 2*second, To: next + woken}}
		if asleep {
			h.Events = append(h.Events, Event{What: Starved, Proc: end.Proc, Value: next - 2*second, At: next + woken})
			h.collectStarved()
		}
		return h
	}
	for _, kind := range []string{pauseBriefly, movedBounds, slowDisks.name, "slow handshakes"} {
		require.NotEmpty(t, Judge(plant(kind, second, false)).Violations, kind)
	}
	v := Judge(plant(pauseBriefly, second, true))
	require.Empty(t, v.Violations, "it was granted in the pause")
	require.Equal(t, 1, v.Excused[pauseBriefly])
	require.NotEmpty(t, Judge(plant(pauseBriefly, -second/2, true)).Violations, "it was granted after the pause")
}

// Times in which a process did not run that follow each other at once are one.
func TestStarvedAgainAtOnce(t *testing.T) {
	plant := func(ranFor int64) *History {
		h := told(10)
		h.Lives[5].End = Expired
		end, next := h.event(Ended, 105), h.event(Granted, 106).At
		woken := next + second
		end.Text, end.At = recipes.ErrSessionLost.Error(), woken+ranFor+second
		for _, f := range [][2]int64{{woken + ranFor, end.At - 100*ms}, {next - 2*second, woken}} {
			h.Events = append(h.Events, Event{What: Starved, Proc: end.Proc, Value: f[0], At: f[1]})
		}
		h.collectStarved()
		return h
	}
	require.Empty(t, Judge(plant(15*ms)).Violations)
	require.NotEmpty(t, Judge(plant(200*ms)).Violations, "it ran in between, and could have ended the context")
	h := plant(15 * ms)
	h.Events[len(h.Events)-1].Proc++
	h.Starved = nil
	h.collectStarved()
	require.NotEmpty(t, Judge(h).Violations, "another process")
}

// While the bounds are raised, whoever is robbed may hear of it later.
func TestRaisedBoundsDelayTheDeadline(t *testing.T) {
	h := told(10)
	h.Lives[5].End = Robbed
	late := h.event(Ended, 105)
	h.Faults = []Fault{{Kind: deleteZnode, Znode: fencedPath + "/znode-105", From: late.At - 2*ms, To: late.At + ms}}
	late.At += int64(SessionTimeout) + second
	require.NotEmpty(t, Judge(h).Violations)
	h.Faults = append(h.Faults, Fault{Kind: movedBounds, From: late.At - 10*second, To: late.At})
	require.Empty(t, Judge(h).Violations)
}

// A grant may be recorded late by a process that did not run, and ends at once then.
func TestLateGrant(t *testing.T) {
	plant := func(ended int64) *History {
		h := told(10)
		h.event(Granted, 105).At = h.event(Granted, 106).At + second
		h.event(Ended, 105).At = h.event(Granted, 105).At + ended
		h.Events = append(h.Events, Event{What: Starved, Proc: h.event(Granted, 105).Proc, Value: h.event(Granted, 106).At - 1, At: h.event(Granted, 105).At})
		h.collectStarved()
		return h
	}
	v := Judge(plant(second / 10))
	require.Empty(t, v.Violations)
	require.Positive(t, v.Excused[starved])
	require.NotEmpty(t, Judge(plant(second)).Violations, "it was trusted on")
}

// An end may be recorded late by a goroutine that had to wait, but not where the session
// expired: there a margin is left for that.
func TestLateEnd(t *testing.T) {
	plant := func(cause string, expired bool) *History {
		h := told(10)
		e := h.event(Ended, 105)
		e.At, e.Text = h.event(Granted, 106).At+20*ms, cause
		if expired {
			h.Lives[5].End = Expired
		}
		return h
	}
	require.Empty(t, Judge(plant(recipes.ErrReleased.Error(), false)).Violations)
	require.Empty(t, Judge(plant(recipes.ErrSessionLost.Error(), false)).Violations, "its own delete came after the end")
	require.Empty(t, Judge(plant(killClient, false)).Violations, "killed as it released")
	require.NotEmpty(t, Judge(plant(recipes.ErrNodeDeleted.Error(), false)).Violations)
	require.NotEmpty(t, Judge(plant(recipes.ErrSessionLost.Error(), true)).Violations)
}

// An expired session excuses the holds of that session alone, and nobody who says that he
// leads when his own clock knows better.
func TestNoExcuse(t *testing.T) {
	h := told(10)
	h.event(Ended, 105).At += second
	h.Faults = []Fault{{Kind: expireSession, Proc: h.event(Ended, 105).Proc, From: h.event(Granted, 105).At - second, To: h.event(Granted, 105).At - second}}
	require.NotEmpty(t, Judge(h).Violations)

	h = told(10)
	led := h.event(Led, 105)
	led.At, led.Value = led.At+2*second, led.Value+2*second
	h.Faults = []Fault{{Kind: pauseClient, Proc: led.Proc, From: led.At - second, To: led.At + second}}
	require.Contains(t, fmt.Sprint(Judge(h).Violations), "says that it leads")
}

// A fault excuses a waiter that is not told only as long as it lasts, and some time more.
// That a later one has told him is no excuse.
func TestNotToldInQuietTimes(t *testing.T) {
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

// The quorum was stalled where no server has committed promptly for a while.
func TestStalls(t *testing.T) {
	const late = int64(pulseLate)
	every := func(from, to, took int64) (beats []beat) {
		for at := from; at < to; at += int64(pulseEvery) {
			beats = append(beats, beat{at, at + took})
		}
		return beats
	}
	stall := func(from, to int64) []Fault { return []Fault{{Kind: stalled, From: from, To: to}} }
	require.Empty(t, stalls(nil))
	require.Empty(t, stalls(every(0, 10*second, 5*ms)))
	require.Empty(t, stalls(slices.Concat(every(0, 10*second, 5*ms), every(0, 10*second, 3*second))), "another server is prompt")
	require.Empty(t, stalls(slices.Concat(every(0, second, 5*ms), every(second+late/2, 2*second, 5*ms))), "a short pause")
	slow := slices.Concat(every(0, second, 5*ms), every(second, 6*second, late+1), every(6*second, 7*second, 5*ms))
	last := every(0, second, 5*ms)
	require.Equal(t, stall(last[len(last)-1].answered, 6*second+5*ms), stalls(slow), "late commits")
	require.Equal(t, stall(last[len(last)-1].answered, 6*second+5*ms), stalls(slices.Concat(last, every(6*second, 7*second, 5*ms))), "none")
}

// A server shows a ghost if the znode has been gone for longer than servers are behind.
func TestGhosts(t *testing.T) {
	h := told(10)
	gone := h.monotonic(h.Lives[3].Gone)
	for name, tt := range map[string]struct {
		at    int64
		shows string
		ghost bool
	}{
		"long gone":                {gone + toldLate + second, "znode-103", true},
		"the server is behind":     {gone + second, "znode-103", false},
		"there":                    {h.monotonic(h.Lives[5].Created), "znode-105", false},
		"what the logs don't know": {gone + toldLate + second, "znode-099", true},
	} {
		h.Views = []View{{At: tt.at, Server: 2, Procs: []int{1}, Queues: map[string][]string{fencedPath: {tt.shows}}}}
		v := Judge(h)
		require.Equal(t, 1, v.Views, name)
		if !tt.ghost {
			require.Empty(t, v.Ghosts, name)
			continue
		}
		require.Len(t, v.Ghosts, 1, name)
		if v.Ghosts[0].End == Never {
			require.Zero(t, h.GoneFor(v.Ghosts[0]), name)
		} else {
			require.Equal(t, time.Duration(toldLate+second), h.GoneFor(v.Ghosts[0]), name)
		}
	}
}

// Who waits behind a ghost is told when the client asks the leader, which it does rarely.
func TestBehindAGhost(t *testing.T) {
	const from = 30 * second
	for name, tt := range map[string]struct {
		view  View
		wait  int64
		isBad bool
	}{
		"behind a ghost":             {View{Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-103", "znode-200"}}}, 100 * second, false},
		"behind what never was":      {View{Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-099", "znode-200"}}}, 100 * second, false},
		"ahead of what never was":    {View{Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-200", "znode-300"}}}, 100 * second, true},
		"for too long":               {View{Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-103", "znode-200"}}}, int64(servedIn) + toldLate + second, true},
		"on another server":          {View{Procs: []int{2}, Queues: map[string][]string{fencedPath: {"znode-103", "znode-200"}}}, 100 * second, true},
		"a ghost in another queue":   {View{Procs: []int{1}, Queues: map[string][]string{mixedPath: {"znode-103"}}}, 100 * second, true},
		"ahead of a ghost":           {View{Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-200", "znode-201"}}}, 100 * second, true},
		"before it waited":           {View{At: -21 * second, Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-103"}}}, 100 * second, true},
		"after it waited":            {View{At: 81 * second, Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-103"}}}, 100 * second, true},
		"behind a znode that stands": {View{Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-200"}}}, 100 * second, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := told(10)
			h.lease(1, 200, from+tt.wait, from+tt.wait+second)
			h.Lives[len(h.Lives)-1].Created = from / ms
			h.Lives = append(h.Lives, &Life{Path: fencedPath + "/znode-201", Token: 201, Created: from / ms, Gone: from/ms + 1, GoneBy: 2011, End: Deleted, Session: 2})
			tt.view.At += from + 20*second
			h.Views = []View{tt.view}
			violations := fmt.Sprint(Judge(h).Violations)
			if tt.isBad {
				require.Contains(t, violations, "was not told")
			} else {
				require.Equal(t, "[]", violations)
			}
		})
	}
}

// Only a ghost on a server that has clients, since the last fault, excuses that everybody waits for longer.
func TestGhostInTheWay(t *testing.T) {
	h := told(10)
	gone := h.monotonic(h.Lives[3].Gone)
	seen := gone + toldLate + second
	for name, tt := range map[string]struct {
		procs []int
		since int64
		isBad bool
	}{
		"since then":  {[]int{1}, gone, false},
		"before then": {[]int{1}, seen + 1, true},
		"no client":   {nil, gone, true},
	} {
		h.Views = []View{{At: seen, Server: 2, Procs: tt.procs, Queues: map[string][]string{fencedPath: {"znode-103"}}}}
		v := Judge(h)
		require.Equal(t, !tt.isBad, v.HasStopped(2, tt.since), name)
		require.False(t, v.HasStopped(1, tt.since), name)
		if tt.isBad {
			require.Equal(t, healedIn, v.SettlesIn(tt.since), name)
		} else {
			require.Equal(t, servedIn, v.SettlesIn(tt.since), name)
		}
	}
}

// What stands for a znode is not judged once a server has shown, in a lull, that it does not have
// what the majority has logged; nor is it judged leniently where all servers have it.
func TestDisputedZnodes(t *testing.T) {
	plant := func(shows string, after int64) *History {
		h := told(10)
		l := h.Lives[5]
		l.Gone = h.Lives[9].Gone + 2000 // the next leases have it ahead of them
		h.event(Ended, 105).At = h.monotonic(l.Gone)
		h.Views = []View{{At: h.monotonic(l.Created) + after, Server: 2, Procs: []int{1}, Queues: map[string][]string{fencedPath: {shows}}}}
		return h
	}
	v := Judge(plant("znode-109", toldLate+1))
	require.Empty(t, v.Violations)
	require.Len(t, v.Disputed, 1)
	require.Equal(t, 9, v.Leases[fencedPath])
	require.Empty(t, Linearize(plant("znode-109", toldLate+1)))
	for name, h := range map[string]*History{
		"all have it":                 plant("znode-105", toldLate+1),
		"the server is behind":        plant("znode-109", toldLate-1),
		"no server has shown a thing": plant("znode-109", 100*second),
	} {
		v := Judge(h)
		require.Empty(t, v.Disputed, name)
		require.NotEmpty(t, v.Violations, name)
		require.NotEmpty(t, Linearize(h), name)
	}
}

// Amid faults a server may be behind. It lacks a znode only if it has executed a later transaction of the same queue, and if a server
// shows the znode after that.
func TestDisputedAmidFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		shows      string
		changed    int64 // counted from the create
		then       string
		isDisputed bool
	}{
		"a later transaction":      {"znode-109", 5, "znode-105", true},
		"the create itself":        {"znode-109", 0, "znode-105", true},
		"no server has it":         {"znode-109", 5, "znode-109", false},
		"the server is behind":     {"znode-109", -1, "znode-105", false},
		"it has deleted the znode": {"znode-109", 40, "znode-105", false},
		"it has the znode":         {"znode-105", 0, "znode-105", false},
		"the queue is not there":   {"znode-109", -105, "znode-105", false},
	} {
		h := told(10)
		l := h.Lives[5]
		l.Gone, l.GoneBy = h.Lives[9].Gone+2000, l.Token+40
		at := h.monotonic(l.Created) + toldLate + 1
		h.Views = []View{
			{At: at + 1, AmidFaults: true, Server: 1, Queues: map[string][]string{fencedPath: {tt.then}}},
			{
				At: at, AmidFaults: true, Server: 2,
				Queues: map[string][]string{fencedPath: {tt.shows}}, Changed: map[string]int64{fencedPath: l.Token + tt.changed},
			},
		}
		v := Judge(h)
		require.Equal(t, 2, v.Glances, name)
		require.Zero(t, v.Views, name)
		require.Equal(t, tt.isDisputed, len(v.Disputed) == 1, name)
	}
}

// Whoever is behind a znode that some servers have and others don't may have to wait for it, and for no longer.
func TestNotToldBehindADisputedZnode(t *testing.T) {
	const later = 40 * second
	plant := func(gone int64) *History {
		h := told(10)
		for i := range h.Events {
			if h.Events[i].Token >= 106 {
				h.Events[i].At += later
				h.Events[i].Wall += later / ms
			}
		}
		for _, l := range h.Lives[6:] {
			l.Gone += later / ms
		}
		l := h.Lives[5]
		l.Gone = gone / ms
		h.event(Ended, 105).At = h.monotonic(l.Gone)
		h.Views = []View{{At: h.monotonic(l.Created) + toldLate + 1, Server: 2, Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-109"}}}}
		return h
	}
	v := Judge(plant(later + 5*second))
	require.Len(t, v.Disputed, 1)
	require.Empty(t, v.Violations)
	v = Judge(plant(later / 2))
	require.Len(t, v.Disputed, 1)
	require.Contains(t, fmt.Sprint(v.Violations), "was not told")
}

// Whoever leaves a server because it shows a znode that is gone is right: it is.
func TestLeavesAServer(t *testing.T) {
	h := told(10)
	gone := h.monotonic(h.Lives[5].Gone)
	leave := func(at int64) *History {
		left := *h
		left.Events = append(slices.Clone(h.Events), Event{What: Haunted, At: at, By: "p2", Proc: 2, Znode: h.Lives[5].Path})
		return &left
	}
	v := Judge(leave(gone + second))
	require.Empty(t, v.Violations)
	require.Equal(t, 1, v.Happened[Haunted])
	require.Contains(t, fmt.Sprint(Judge(leave(gone-second)).Violations), "which is there")

	// The leader may have said so, against the logs: then nobody can tell.
	for name, refusal := range map[string]Refusal{
		"just before":       {h.Lives[5].Session, h.Lives[5].Gone - 1500},
		"another session's": {h.Lives[5].Session + 1000, h.Lives[5].Gone - 1500},
		"long before":       {h.Lives[5].Session, h.Lives[5].Gone - 60_000},
		"only later":        {h.Lives[5].Session, h.Lives[5].Gone},
	} {
		left := leave(gone - second)
		left.Refusals = []Refusal{refusal}
		v := Judge(left)
		if name == "just before" {
			require.Len(t, v.Disputed, 1)
			require.Empty(t, v.Violations, name)
			continue
		}
		require.Contains(t, fmt.Sprint(v.Violations), "which is there", name)
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
			if tt.part != 0 {
				h.Events = append(h.Events, Event{What: Part, By: "p1", Proc: 1, Path: fencedPath, Token: 200, Znode: l.Path, At: tt.part})
			}
			violations := fmt.Sprint(Judge(h).Violations)
			if tt.late {
				require.Contains(t, violations, "was not told")
			} else {
				require.Equal(t, "[]", violations)
			}
		})
	}
}
