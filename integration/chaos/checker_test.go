package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// told is a history of consecutive leases, of one second each, by four processes.
func told(leases int) *History {
	h := &History{}
	for i := range leases {
		at := int64(i+1) * int64(time.Second)
		h.lease(i%4+1, int64(100+i), at, at+int64(900*time.Millisecond))
	}
	return h
}

// zxids is the number of transactions from one token to the next.
const zxids = 10

const second = int64(time.Second)

// lease adds a lease, followed by a write.
func (h *History) lease(proc int, token, from, to int64) {
	by, znode := fmt.Sprintf("p%d", proc), fmt.Sprintf("%s/znode-%d", fencedPath, token)
	add := func(at int64, e Event) {
		e.At, e.Wall, e.By, e.Proc, e.Path, e.Try, e.Token = at, at/ms, by, proc, fencedPath, int(token), token
		h.Events = append(h.Events, e)
	}
	add(from-10*ms, Event{What: Called})
	add(from, Event{What: Granted, Znode: znode})
	add(from+1*ms, Event{What: Claiming})
	add(from+2*ms, Event{What: Claimed})
	add(from+3*ms, Event{What: Writing, Value: token})
	add(from+4*ms, Event{What: Wrote, Value: token})
	add(from+5*ms, Event{What: Led, Value: from + 4*ms})
	add(from+6*ms, Event{What: Marked, Zxid: token * zxids})
	add(to-ms, Event{What: Releasing})
	add(to, Event{What: Ended, Text: recipes.ErrReleased.Error()})
	add(to+ms, Event{What: Released})
	h.Lives = append(h.Lives, &Life{Path: znode, Token: token, Created: (from - 5*ms) / ms, Gone: to / ms, GoneBy: token*zxids + 1, End: Deleted, Session: int64(proc)})
}

// again lets the holder of a token acquire again, which gives another one, until an instant.
func (h *History) again(token, inner, until int64) {
	at := h.event(Granted, token).At
	for _, e := range []Event{{What: Reacquired, Token: inner, At: at + 1}, {What: Ended, Token: inner, At: until, Text: recipes.ErrSessionLost.Error()}} {
		e.By, e.Proc, e.Path, e.Try = h.event(Granted, token).By, h.event(Granted, token).Proc, fencedPath, int(token)
		h.Events = append(h.Events, e)
	}
}

// attempt adds an attempt that ends without a lease after a second.
func (h *History) attempt(limit string, after time.Duration, why string) {
	at := h.Events[len(h.Events)-1].At
	for _, e := range []Event{{What: Called, Text: limit, Value: int64(after), At: at}, {What: Failed, Text: why, At: at + second}} {
		e.By, e.Proc, e.Path, e.Try = "p9", 9, fencedPath, 1
		h.Events = append(h.Events, e)
	}
}

// event returns an event to be changed by a planted defect.
func (h *History) event(what What, token int64) *Event {
	for i := range h.Events {
		if h.Events[i].What == what && h.Events[i].Token == token {
			return &h.Events[i]
		}
	}
	return nil
}

func TestCheckersAcceptASoundHistory(t *testing.T) {
	h := told(40)
	h.attempt(byDeadline, time.Second, "mutex: acquire: context deadline exceeded")
	h.attempt(byCancel, time.Second, "mutex: acquire: context canceled")
	h.attempt(byTry, 0, recipes.ErrNotAcquired.Error())
	v := Judge(h)
	require.Empty(t, v.Violations)
	require.Equal(t, 40, v.Leases[fencedPath])
	require.Equal(t, 40, v.Happened[Wrote])
	require.Empty(t, Linearize(h))
}

// defects are violations that the checkers have to find, by description.
var defects = map[string]struct {
	plant  func(*History)
	judge  string // part of a violation; "": none
	linear string
}{
	"a function that goes on after its lock was passed on": {
		func(h *History) { e := h.event(Ended, 105); e.At, e.Text = e.At+second, byShutdown }, "is granted", "",
	},
	"a Shutdown that does not wait for a function": {
		func(h *History) { h.event(Led, 105).What = Deserted }, "Shutdown returned", "",
	},
	"an attempt that is given up without a shutdown": {
		func(h *History) { h.attempt(byShutdown, 0, recipes.ErrSessionLost.Error()) }, "gives up", "",
	},
	"a context that ends late": {
		func(h *History) { h.event(Ended, 105).At += second }, "is granted", "",
	},
	"a context that never ends": {
		func(h *History) { h.event(Ended, 105).What = "forgotten" }, "has not ended", "",
	},
	"a lower token for a later holder": {
		func(h *History) { h.lease(1, 50, 60*second, 61*second) }, "before p1 has 50", "lock",
	},
	"one token for two": {
		func(h *History) { h.lease(2, 105, 60*second, 61*second) }, "given twice", "lock",
	},
	"a grant while a znode is ahead": {
		func(h *History) { h.Lives[5].Gone += 1500 }, "is ahead", "lock",
	},
	"a znode that stays": {
		func(h *History) { h.Lives[5].Gone = 0 }, "is ahead", "lock",
	},
	"a lease without a znode": {
		func(h *History) { h.Lives[5].Path = "/elsewhere" }, "do not tell", "lock",
	},
	"a lost update": {
		func(h *History) { h.event(Wrote, 106).Value = 105 }, "an update is lost", "",
	},
	"a stale claim that the row takes": {
		func(h *History) {
			late := *h.event(Claiming, 105)
			done := *h.event(Claimed, 105)
			late.At, done.At = 60*second, 60*second+ms
			h.Events = append(h.Events, late, done)
		}, "", "row",
	},
	"a good claim that the row refuses": {
		func(h *History) { h.event(Claimed, 105).What = Refused }, "", "row",
	},
	"a write of the znode before its time": {
		func(h *History) { h.event(Marked, 105).Zxid = 2 }, "when it is stale", "",
	},
	"a stale write of the znode": {
		func(h *History) { h.Lives[5].GoneBy = 100_000; h.event(Marked, 105).Zxid = 100_001 }, "when it is stale", "",
	},
	"a good write of the znode that is refused": {
		func(h *History) { h.event(Marked, 105).What = Unmarked }, "refused, and good", "",
	},
	"another token when acquired again": {
		func(h *History) { h.again(105, 999, 10*second) }, "when it acquires again", "",
	},
	"an inner lease that outlives its znode": {
		func(h *History) { h.again(105, 105, h.event(Ended, 105).At+second) }, "is granted", "",
	},
	"a context that stands and can't acquire again": {
		func(h *History) { h.event(Led, 105).What = Unnested }, "can't acquire what it has", "",
	},
	"a tick that is run twice": {
		func(h *History) { h.event(Led, 105).What = Repeated }, "which was run before", "",
	},
	"a late context behind one that was recorded late": {
		func(h *History) {
			h.event(Ended, 105).At = 8*second + 300*ms
			h.event(Granted, 106).At = 8*second + 500*ms
		}, "is granted", "",
	},
	"a waiter that is first and is not told": {
		func(h *History) {
			for i := range h.Events {
				if h.Events[i].Token >= 105 {
					h.Events[i].At += 5 * second
					h.Events[i].Wall += 5000
				}
			}
			for _, l := range h.Lives[5:] {
				l.Gone += 5000
			}
		}, "was not told", "",
	},
	"a leader who is none": {
		func(h *History) { e := h.event(Led, 105); e.At += 2 * second; e.Value += 2 * second }, "says that it leads", "",
	},
	"a row that does not answer": {
		func(h *History) { h.event(Wrote, 105).What = Unsure }, "no answer", "",
	},
	"a context that stands after the release": {
		func(h *History) { h.event(Released, 105).What = Standing }, "stands when Release has returned", "",
	},
	"an attempt without a limit that is given up": {
		func(h *History) { h.attempt(unlimited, 0, "mutex: acquire: context deadline exceeded") }, "gives up", "",
	},
	"an attempt that is given up for another reason than its limit": {
		func(h *History) { h.attempt(byDeadline, time.Second, "mutex: acquire: context canceled") }, "gives up", "",
	},
	"an attempt that is given up too early": {
		func(h *History) { h.attempt(byDeadline, time.Second+1, "mutex: acquire: context deadline exceeded") }, "gives up", "",
	},
	"a waiter that is first, is not told, and is killed": {
		func(h *History) {
			h.Lives = append(h.Lives, &Life{Path: fencedPath + "/left", Token: 1000, Created: 20_000, Gone: 40_000, End: Expired, Session: 2})
			h.Faults = []Fault{{Kind: killClient, Proc: 2, From: 39 * second, To: 39 * second}}
		}, "was not told", "",
	},
	"goroutines left": {
		func(h *History) { h.Events = append(h.Events, Event{What: Left, Text: "one"}) }, "leaves goroutines", "",
	},
}

// The responsible check finds each planted defect.
func TestCheckersFindPlantedDefects(t *testing.T) {
	for name, tt := range defects {
		t.Run(name, func(t *testing.T) {
			h := told(10)
			tt.plant(h)
			require.Contains(t, fmt.Sprint(Judge(h).Violations), tt.judge)
			require.Contains(t, fmt.Sprint(Linearize(h)), tt.linear)
			if tt.judge == "" {
				require.Empty(t, Judge(h).Violations)
			}
			if tt.linear == "" {
				require.Empty(t, Linearize(h))
			}
		})
	}
}

// For a killed process it is unknown whether the row got its write, which is no violation.
func TestKilledProcess(t *testing.T) {
	for name, later := range map[string]What{"it did not": Claimed, "it did": Refused} {
		t.Run(name, func(t *testing.T) {
			h := told(10)
			h.Events = slices.DeleteFunc(h.Events, func(e Event) bool {
				return e.Token == 105 && slices.Contains([]What{Claimed, Writing, Wrote, Led, Marked, Releasing, Ended, Released}, e.What)
			})
			c := &client{events: h.Events}
			c.mourn()
			h.Events = c.events
			h.event(Ended, 105).At = h.event(Claiming, 105).At + 1
			stale := *h.event(Claiming, 104)
			stale.At, stale.Try = h.event(Ended, 105).At+1, 1000
			answer := stale
			answer.At, answer.What = stale.At+1, later
			h.Events = append(h.Events, stale, answer)
			require.Empty(t, Linearize(h))

			v := Judge(h)
			require.Empty(t, v.Violations)
			require.Equal(t, 1, v.Causes[killClient])
		})
	}
}

// The unfinished attempts of processes that were not killed are listed, the longest first.
func TestListUnfinished(t *testing.T) {
	h := &History{}
	for at, e := range []Event{
		{By: "p1.0.3/chaos/mixed", What: Called},
		{By: "p1.1.3/chaos/mixed", What: Called}, // after a kill
		{By: "p1.1.3/chaos/mixed", What: Granted},
		{By: "p1.1.4/chaos/mixed", What: Called},
		{By: "p1.1.5/chaos/fenced", What: Called},
		{By: "p1.1.5/chaos/fenced", What: Failed},
		{By: "p1.1.6/chaos/selector", What: Releasing, Path: selectorPath},
		{By: "p1.1.6/chaos/selector", What: Ended, Path: selectorPath},
		{By: "p1.1.7/chaos/fenced", What: Releasing},
		{By: "p1.1.7/chaos/fenced", What: Ended},
		{By: "p2.0.1/chaos/fenced", What: Called}, // and killed
		{By: "p1.1.3/chaos/mixed", What: Released},
	} {
		e.At, e.Proc = int64(at)*second, 1
		h.Events = append(h.Events, e)
	}
	require.Equal(t, []string{
		"p2.1: nothing has begun", "p1.1.3/chaos/mixed: granted for 8s", "p1.1.4/chaos/mixed: called for 7s", "p1.1.7/chaos/fenced: releasing for 2s",
	}, listUnfinished(h.Events, 10*second, []string{"p1.1", "p2.1"}))
}

// The first znode of a queue is the existing one with the lowest token, whatever servers show.
func TestListQueueHeads(t *testing.T) {
	h := &History{Lives: []*Life{
		{Path: fencedPath + "/gone", Token: 1, Created: 1000, Gone: 2000},
		{Path: fencedPath + "/second", Token: 3, Created: 3000},
		{Path: fencedPath + "/first", Token: 2, Created: 2000, Gone: 9000},
		{Path: mixedPath + "/late", Token: 4, Created: 8000},
	}}
	require.Equal(t, []string{fencedPath + ": 2 znodes, the first for 5s: first"}, h.listQueueHeads(7*second))
}

// The parts of one transaction have one token. What the znode of one part shows says nothing about the other.
func TestPartsWithOneToken(t *testing.T) {
	h := told(4)
	for _, l := range slices.Clone(h.Lives) {
		granted := h.event(Granted, l.Token)
		part := Event{By: granted.By + "+1", Proc: granted.Proc, Path: basketPath1, Try: granted.Try, Token: l.Token}
		for i, what := range []What{Granted, Releasing, Ended} {
			part.What, part.At, part.Wall = what, granted.At+int64(i)*ms, granted.Wall+int64(i)
			part.Znode, part.Text = fmt.Sprintf("%s/znode-%d", basketPath1, l.Token), recipes.ErrReleased.Error()
			h.Events = append(h.Events, part)
		}
		h.Lives = append(h.Lives, &Life{
			Path: part.Znode, Token: l.Token, Created: l.Created, Gone: part.Wall, GoneBy: l.Token*zxids - 1, End: Deleted, Session: l.Session,
		})
	}
	slices.SortStableFunc(h.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	v := Judge(h)
	require.Empty(t, v.Violations)
	require.Equal(t, 4, v.Leases[basketPath1])
	require.Empty(t, Linearize(h))
}
