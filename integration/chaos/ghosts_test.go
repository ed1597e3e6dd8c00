package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A server shows a ghost if the znode was deleted for longer than servers lag.
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

// A waiter behind a ghost is notified when its client asks the leader, which is rare.
func TestBehindAGhost(t *testing.T) {
	const from = 30 * second
	before := View{At: -21 * second, Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-103"}}}
	for name, tt := range map[string]struct {
		view  View
		wait  int64
		isBad bool
		left  []Event
	}{
		"behind a ghost":                        {View{Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-103", "znode-200"}}}, 100 * second, false, nil},
		"behind what never was":                 {View{Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-099", "znode-200"}}}, 100 * second, false, nil},
		"ahead of what never was":               {View{Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-200", "znode-300"}}}, 100 * second, true, nil},
		"for too long":                          {View{Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-103", "znode-200"}}}, int64(servedIn) + toldLate + second, true, nil},
		"on another server":                     {View{Procs: []int{2}, Queues: map[string][]string{fencedPath: {"znode-103", "znode-200"}}}, 100 * second, true, nil},
		"a ghost in another queue":              {View{Procs: []int{1}, Queues: map[string][]string{mixedPath: {"znode-103"}}}, 100 * second, true, nil},
		"ahead of a ghost":                      {View{Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-200", "znode-201"}}}, 100 * second, true, nil},
		"before it waited":                      {before, 100 * second, true, nil},
		"after it waited":                       {View{At: 81 * second, Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-103"}}}, 100 * second, true, nil},
		"behind a znode that stands":            {View{Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-200"}}}, 100 * second, true, nil},
		"seen before, and left during the wait": {before, 100 * second, false, []Event{{What: Haunted, At: from + second, Proc: 1, Znode: "znode-103"}}},
		"seen before, and left before the wait": {before, 100 * second, true, []Event{{What: Haunted, At: from - second, Proc: 1, Znode: "znode-103"}}},
		"seen before, and left by another":      {before, 100 * second, true, []Event{{What: Haunted, At: from + second, Proc: 2, Znode: "znode-103"}}},
		"left, and no ghost seen":               {View{Procs: []int{1}}, 100 * second, true, []Event{{What: Haunted, At: from + second, Proc: 1, Znode: "znode-103"}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := told(10)
			h.lease(1, 200, from+tt.wait, from+tt.wait+second)
			h.Lives[len(h.Lives)-1].Created = from / ms
			h.Lives = append(h.Lives, &Life{Path: fencedPath + "/znode-201", Token: 201, Created: from / ms, Gone: from/ms + 1, GoneBy: 2011, End: Deleted, Session: 2})
			tt.view.At += from + 20*second
			h.Views, h.Events = []View{tt.view}, append(h.Events, tt.left...)
			violations := fmt.Sprint(Judge(h).Violations)
			if tt.isBad {
				require.Contains(t, violations, "was not told")
			} else {
				require.Equal(t, "[]", violations)
			}
		})
	}
}

// Only a ghost on a server with clients, after the last fault, excuses that all contenders wait for longer.
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

// overtaken returns a history in which lease 105 ends after the next four, although they are behind it. After the creation of its
// znode, a server shows another one.
func overtaken(shows string, after int64) *History {
	h := told(10)
	l := h.Lives[5]
	l.Gone = h.Lives[9].Gone + 2000
	h.event(Ended, 105).At = h.monotonic(l.Gone)
	h.Views = []View{{At: h.monotonic(l.Created) + after, Server: 2, Procs: []int{1}, Queues: map[string][]string{fencedPath: {shows}}}}
	return h
}

// A znode is disputed if a server, in a lull, lacks it although the majority logged it.
func TestLeaseOnADisputedZnodeIsNotJudged(t *testing.T) {
	h := overtaken("znode-109", toldLate+1)
	v := Judge(h)
	require.Empty(t, v.Violations)
	require.Len(t, v.Disputed, 1)
	require.Equal(t, 9, v.Leases[fencedPath])
	require.Empty(t, Linearize(h))
}

func TestLeaseOnAnUndisputedZnodeIsJudged(t *testing.T) {
	for name, h := range map[string]*History{
		"all have it":                 overtaken("znode-105", toldLate+1),
		"the server is behind":        overtaken("znode-109", toldLate-1),
		"no server has shown a thing": overtaken("znode-109", 100*second),
	} {
		v := Judge(h)
		require.Empty(t, v.Disputed, name)
		require.NotEmpty(t, v.Violations, name)
		require.NotEmpty(t, Linearize(h), name)
	}
}

// Amid faults a server may lag. It lacks a znode only if it executed a later transaction of the same queue, and if a server
// shows the znode later.
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

// behindADisputedZnode returns a history in which lease 106 is granted 40 s later than its predecessor's end. The znode of the
// latter is disputed, and deleted at an instant.
func behindADisputedZnode(deleted int64) *History {
	const later = 40 * second
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
	l.Gone = deleted / ms
	h.event(Ended, 105).At = h.monotonic(l.Gone)
	h.Views = []View{{At: h.monotonic(l.Created) + toldLate + 1, Server: 2, Procs: []int{1}, Queues: map[string][]string{fencedPath: {"znode-109"}}}}
	return h
}

func TestContenderMayWaitForADisputedZnode(t *testing.T) {
	v := Judge(behindADisputedZnode(45 * second))
	require.Len(t, v.Disputed, 1)
	require.Empty(t, v.Violations)
}

func TestContenderIsNotifiedOfTheDeletionOfADisputedZnode(t *testing.T) {
	v := Judge(behindADisputedZnode(20 * second))
	require.Len(t, v.Disputed, 1)
	require.Contains(t, fmt.Sprint(v.Violations), "was not told")
}

// leaves returns a history in which a client leaves a server, at an instant counted from the deletion of znode 105, because the
// server shows that znode.
func leaves(after int64) *History {
	h := told(10)
	l := h.Lives[5]
	h.Events = append(h.Events, Event{What: Haunted, At: h.monotonic(l.Gone) + after, By: "p2", Proc: 2, Znode: l.Path})
	return h
}

func TestClientMayLeaveAServerThatShowsADeletedZnode(t *testing.T) {
	v := Judge(leaves(second))
	require.Empty(t, v.Violations)
	require.Equal(t, 1, v.Happened[Haunted])
}

func TestClientMustNotLeaveAServerThatShowsAZnodeThatIsThere(t *testing.T) {
	require.Contains(t, fmt.Sprint(Judge(leaves(-second)).Violations), "which is there")
}

// The leader refuses the session's request, and so contradicts the logs. Nothing is decidable.
func TestRefusalJustBeforeMakesAZnodeDisputed(t *testing.T) {
	h := leaves(-second)
	h.Refusals = []Refusal{{h.Lives[5].Session, h.Lives[5].Gone - 1500}}
	v := Judge(h)
	require.Len(t, v.Disputed, 1)
	require.Empty(t, v.Violations)
}

func TestOtherRefusalsMakeNoZnodeDisputed(t *testing.T) {
	l := told(10).Lives[5]
	for name, refusal := range map[string]Refusal{
		"another session's": {l.Session + 1000, l.Gone - 1500},
		"long before":       {l.Session, l.Gone - 60_000},
		"only later":        {l.Session, l.Gone},
	} {
		h := leaves(-second)
		h.Refusals = []Refusal{refusal}
		require.Contains(t, fmt.Sprint(Judge(h).Violations), "which is there", name)
	}
}
