package chaos

import (
	"cmp"
	"path"
	"slices"
	"time"
)

// Fault is what the nemesis did, from when to when on the machine's monotonic clock.
type Fault struct {
	Kind     string
	Proc     int    // whose, 0: a server's
	Znode    string // that was deleted
	From, To int64
	Missed   bool // it hit nothing
}

// Faults that somebody else commits behind the holder's back.
const (
	pauseClient   = "client paused"
	pauseBriefly  = "client paused for less than its session"
	killClient    = "client killed"
	expireSession = "session expired"
	deleteZnode   = "znode deleted"
)

// Hold is one attempt, and the lease that came of it.
type Hold struct {
	By, Path, Znode, Cause              string
	Proc, Try                           int
	Token                               int64
	Called, Granted, Releasing, Ended   int64 // 0: did not happen
	GrantedWall                         int64
	Rank                                int // among the path's leases, by token
	Life                                *Life
	Under                               bool // a read lock that was acquired under the write lock, whose token it has
	reacquired, rereleased, led, leadAt []int64
	innerToken                          int64 // of the lease that came of acquiring again
}

// History is everything that was recorded.
type History struct {
	Events   []Event
	Faults   []Fault
	Starved  []Fault // processes that did not run, and times in which the quorum was stalled, for whatever reason
	Lives    []*Life
	Refusals []Refusal
	Views    []View
	Offset   int64 // wall clock minus monotonic clock, in nanoseconds
	Former   []Era // before the servers were restored from a backup; Lives and Refusals are of the time since then
}

// holds returns the leases of each path, by token. One whose znode the servers dispute is no lease that can be judged.
func (h *History) holds() map[string][]*Hold {
	type key struct {
		by  string
		try int
	}
	all := make(map[key]*Hold)
	led := make(map[int64]*Hold)
	called := make(map[key]int64)
	lives, disputed := h.byPath(), h.Disputed()
	byPath := make(map[string][]*Hold)
	for _, e := range h.Events {
		k := key{e.By, e.Try}
		if e.What == Called {
			called[k] = e.At
			continue
		}
		if _, doubt := disputed[lives[e.Znode]]; doubt {
			continue
		}
		if e.What == Granted {
			hold := &Hold{
				By: e.By, Path: e.Path, Proc: e.Proc, Try: e.Try, Token: e.Token, Znode: e.Znode,
				Called: called[k], Granted: e.At, GrantedWall: e.Wall, Life: lives[e.Znode], Under: e.Text == underWriter,
			}
			all[k], led[e.Token] = hold, hold
			byPath[e.Path] = append(byPath[e.Path], hold)
			continue
		}
		if e.What == Led {
			if hold := led[e.Token]; hold != nil {
				hold.led, hold.leadAt = append(hold.led, e.Value), append(hold.leadAt, e.At)
			}
			continue
		}
		if hold := all[k]; hold != nil {
			hold.tell(e)
		}
	}
	for _, holds := range byPath {
		slices.SortFunc(holds, func(a, b *Hold) int { return cmp.Compare(a.Token, b.Token) })
		for i, hold := range holds {
			hold.Rank = i + 1
		}
	}
	return byPath
}

// byPath are the lives of all znodes.
func (h *History) byPath() map[string]*Life {
	lives := make(map[string]*Life)
	for _, l := range h.Lives {
		lives[l.Path] = l
	}
	return lives
}

func (hold *Hold) tell(e Event) {
	switch e.What {
	case Ended: // the outer lease's, or the inner one's, which may come later
		if e.At > hold.Ended {
			hold.Ended, hold.Cause = e.At, e.Text
		}
	case Releasing:
		hold.Releasing = e.At
	case Reacquired:
		hold.reacquired, hold.innerToken = append(hold.reacquired, e.At), e.Token
	case Rereleased:
		hold.rereleased = append(hold.rereleased, e.At)
	default:
	}
}

// gone is when the hold's znode went, on the monotonic clock.
func (h *History) gone(hold *Hold) int64 { return h.monotonic(hold.Life.Gone) }

// monotonic is a time of the logs on the monotonic clock.
func (h *History) monotonic(wall int64) int64 { return wall*int64(time.Millisecond) - h.Offset }

// How long after its cause a context may end.
const (
	// toldLate is for what somebody else does at the servers: they hang up, the client
	// reconnects and is told, or its deadline comes first.
	toldLate = int64(SessionTimeout)
	// wokenLate is for a process that runs again: it has its own clock.
	wokenLate = int64(500 * time.Millisecond)
)

// toldBy is toldLate for what is done at an instant: the deadline comes later while the servers' bounds are raised.
func (h *History) toldBy(at int64) int64 {
	for _, f := range h.Faults {
		if f.Kind == movedBounds && f.From <= at && at <= f.To {
			return int64(raisedTimeout)
		}
	}
	return toldLate
}

// margin is how long a context ends before its session can, at least.
const margin = int64(SessionTimeout) / 12

// excuse names the fault for which a hold's context may have stood at a moment when
// somebody else had the lock: "" is none.
func (h *History) excuse(hold *Hold, at int64) string {
	if fault := h.deprived(hold, at); fault != "" {
		return fault
	}
	return h.asleep(hold, func(f Fault) bool {
		if hold.Life != nil && hold.Life.End == Expired && f.To-f.From < margin {
			return false
		}
		return f.From <= at && at <= f.To+handover && hold.Granted <= f.To && hold.Ended <= f.To+wokenLate
	})
}

// deprived names what somebody else did to the hold's znode or session at the servers, until
// its holder can have heard of it.
func (h *History) deprived(hold *Hold, at int64) string {
	for _, f := range h.Faults {
		if f.From > at || !h.robs(f, hold) {
			continue
		}
		done := f.To
		if hold.Life != nil {
			done = h.gone(hold)
		}
		stopped, _ := h.stopped(hold.Proc, f.From, hold.Ended)
		if hold.Ended <= done+h.toldBy(done)+stopped {
			return f.Kind
		}
	}
	return ""
}

// robs reports whether it was this fault that took the hold's znode away.
func (h *History) robs(f Fault, hold *Hold) bool {
	switch {
	case f.Kind == deleteZnode:
		return f.Znode == hold.Znode && hold.Life != nil && hold.Life.End == Robbed
	case f.Kind != expireSession || f.Proc != hold.Proc:
		return false
	case hold.Life == nil: // a peer's: nobody knows its znode
		return hold.Ended >= f.From
	default: // it may have been done long after it was asked for
		return hold.Life.End == Closed && h.gone(hold) >= f.From-clockError
	}
}

// lateGrant names the fault for which a grant may have been recorded after the next one.
func (h *History) lateGrant(hold, next *Hold) string {
	if fault := h.excuse(hold, hold.Granted); fault != "" {
		return fault
	}
	return h.asleep(hold, func(f Fault) bool {
		return f.From <= next.Granted && hold.Granted <= f.To+wokenLate && hold.Ended <= hold.Granted+wokenLate
	})
}

// asleep names what kept the hold's process from running in a way that covers something. A pause for less than the session
// is not among that: the time in which the process did not run, by its own account, has to do.
func (h *History) asleep(hold *Hold, covers func(Fault) bool) string {
	for _, f := range slices.Concat(h.Starved, h.Faults) {
		if f.Proc == hold.Proc && (f.Kind == pauseClient || f.Kind == starved) && covers(f) {
			if _, kind := h.stopped(hold.Proc, f.From, f.To); kind != "" {
				return kind
			}
			return starved
		}
	}
	return ""
}

// stopped is for how long the nemesis paused a process in a span of time, and by what kind of fault.
func (h *History) stopped(proc int, from, to int64) (sum int64, kind string) {
	for _, f := range h.Faults {
		span := min(f.To, to) - max(f.From, from)
		if f.Proc == proc && span > 0 && (f.Kind == pauseClient || f.Kind == pauseBriefly) {
			sum, kind = sum+span, f.Kind
		}
	}
	return sum, kind
}

// quiet is the longest stretch of a span of time in which nothing kept a process from being
// told of its znode: no fault of the servers, of the process or of the znode, nor what
// comes after one.
func (h *History) quiet(proc int, znode string, from, to int64) (longest int64) {
	felt := slices.DeleteFunc(slices.Concat(h.Faults, h.Starved), func(f Fault) bool {
		return f.Proc != proc && (f.Proc != 0 || f.Kind == deleteZnode && f.Znode != znode)
	})
	slices.SortFunc(felt, func(a, b Fault) int { return cmp.Compare(a.From, b.From) })
	for _, f := range felt {
		late := toldLate
		if f.Kind == starved && f.To-f.From < int64(SessionTimeout)/6 { // too short to cost it its connection
			late = wokenLate
		}
		longest = max(longest, min(f.From, to)-from)
		from = max(from, f.To+late)
	}
	return max(longest, to-from)
}

// lastFault is when the last fault of a process began before an instant; 0: there was none.
func (h *History) lastFault(proc int, before int64) (last int64) {
	for _, f := range h.Faults {
		if f.Proc == proc && f.From < before {
			last = max(last, f.From)
		}
	}
	return last
}

// end is when the last event was recorded.
func (h *History) end() int64 {
	if len(h.Events) == 0 {
		return 0
	}
	return h.Events[len(h.Events)-1].At
}

// directory is where a znode lies.
func directory(znode string) string { return path.Dir(znode) }
