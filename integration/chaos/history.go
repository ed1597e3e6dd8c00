package chaos

import (
	"cmp"
	"path"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/judge"
)

// Fault is what the nemesis did, from when to when on the machine's monotonic clock.
type Fault struct {
	Kind     string
	Proc     int    // of the affected process; 0: a server's
	Znode    string // that was deleted
	From, To int64
	Missed   bool // it hit nothing
}

// Faults caused by third parties without the holder's knowledge.
const (
	pauseClient   = string(judge.Paused)
	pauseBriefly  = string(judge.PausedBriefly)
	killClient    = "client killed"
	expireSession = string(judge.SessionExpired)
	deleteZnode   = string(judge.ZnodeDeleted)
)

// Hold is one attempt with its lease, if any.
type Hold struct {
	By, Path, Znode, Cause              string
	Proc, Try                           int
	Token                               int64
	Called, Granted, Releasing, Ended   int64 // 0: did not happen
	GrantedWall                         int64
	Rank                                int // among the path's leases, by token
	Life                                *Life
	Under                               bool // a read lock acquired under the write lock, with its token
	reacquired, rereleased, led, leadAt []int64
	innerToken                          int64 // of the lease of a re-entry
}

// History is everything that was recorded.
type History struct {
	Events   []Event
	Faults   []Fault
	Starved  []Fault // processes that did not run, and times in which the quorum was stalled, for any reason
	Lives    []*Life
	Refusals []Refusal
	Views    []View
	Offset   int64 // wall clock minus monotonic clock, in nanoseconds
	Former   []Era // before the servers were restored from a backup; Lives and Refusals are of the time since then
}

// tokenKey identifies a znode. Those of one transaction have one token.
type tokenKey struct {
	path  string // of the lock
	token int64
}

// byToken are the lives of all znodes.
func (h *History) byToken() map[tokenKey]*Life {
	lives := make(map[tokenKey]*Life)
	for _, l := range h.Lives {
		lives[tokenKey{directory(l.Path), l.Token}] = l
	}
	return lives
}

// holds returns the leases of each path, by token. It leaves out leases whose znode the servers dispute, because they
// can't be judged.
func (h *History) holds() map[string][]*Hold {
	type key struct {
		by  string
		try int
	}
	all := make(map[key]*Hold)
	led := make(map[tokenKey]*Hold)
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
			all[k], led[tokenKey{e.Path, e.Token}] = hold, hold
			byPath[e.Path] = append(byPath[e.Path], hold)
			continue
		}
		if e.What == Led {
			if hold := led[tokenKey{e.Path, e.Token}]; hold != nil {
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
	case Ended: // the outer or the inner lease's, whichever is later
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

// gone is the time of the deletion of the hold's znode, on the monotonic clock.
func (h *History) gone(hold *Hold) int64 { return h.monotonic(hold.Life.Gone) }

// monotonic is a time of the logs on the monotonic clock.
func (h *History) monotonic(wall int64) int64 { return wall*int64(time.Millisecond) - h.Offset }

// How long after its cause a context may end.
const (
	// toldLate bounds the notification of a third party's action at the servers: they close the connection, and the
	// client reconnects and is notified, or its deadline is earlier.
	toldLate = int64(SessionTimeout)
	// wokenLate is for a process that runs again, which has its own clock.
	wokenLate = int64(500 * time.Millisecond)
)

// toldBy is toldLate for an instantaneous action. The deadline is later while the servers' bounds are raised.
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

// excuse returns the excuse of a hold whose context was open at a moment at which another client had the lock.
func (h *History) excuse(hold *Hold, at int64) judge.Excuse {
	if excuse := h.harm(hold, at); excuse != judge.None {
		return excuse
	}
	return h.excuseDelay(hold, func(f Fault) bool {
		if hold.Life != nil && hold.Life.End == Expired && f.To-f.From < margin {
			return false
		}
		return f.From <= at && at <= f.To+handover && hold.Granted <= f.To && hold.Ended <= f.To+wokenLate
	})
}

// harm returns the excuse of a hold whose znode or session a third party ended at the servers, until the time at which its
// holder must know.
func (h *History) harm(hold *Hold, at int64) judge.Excuse {
	for _, f := range h.Faults {
		if f.From > at || !h.isHarm(f, hold) {
			continue
		}
		done := f.To
		if hold.Life != nil {
			done = h.gone(hold)
		}
		stopped, _ := h.stopped(hold.Proc, f.From, hold.Ended)
		if hold.Ended <= done+h.toldBy(done)+stopped {
			return judge.Excuse(f.Kind)
		}
	}
	return judge.None
}

// isHarm reports whether this fault deleted the hold's znode.
func (h *History) isHarm(f Fault, hold *Hold) bool {
	switch {
	case f.Kind == deleteZnode:
		return f.Znode == hold.Znode && hold.Life != nil && hold.Life.End == Robbed
	case f.Kind != expireSession || f.Proc != hold.Proc:
		return false
	case hold.Life == nil: // a peer's, whose znode is unknown
		return hold.Ended >= f.From
	default: // possibly executed long after the request
		return hold.Life.End == Closed && h.gone(hold) >= f.From-clockError
	}
}

// excuseLateGrant returns the excuse of a hold whose grant was recorded after the next one.
func (h *History) excuseLateGrant(hold, next *Hold) judge.Excuse {
	if excuse := h.excuse(hold, hold.Granted); excuse != judge.None {
		return excuse
	}
	return h.excuseDelay(hold, func(f Fault) bool {
		return f.From <= next.Granted && hold.Granted <= f.To+wokenLate && hold.Ended <= hold.Granted+wokenLate
	})
}

// excuseDelay returns the reason why the hold's process did not run, if a time in which it did not run covers the delay. For a
// pause shorter than the session, only the process's own record of that time counts.
func (h *History) excuseDelay(hold *Hold, covers func(Fault) bool) judge.Excuse {
	for _, f := range slices.Concat(h.Starved, h.Faults) {
		if f.Proc == hold.Proc && (f.Kind == pauseClient || f.Kind == starved) && covers(f) {
			if _, kind := h.stopped(hold.Proc, f.From, f.To); kind != "" {
				return judge.Excuse(kind)
			}
			return judge.Starved
		}
	}
	return judge.None
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

// quiet is the longest part of a span in which nothing kept a process from a notification about its znode: no fault
// of the servers, the process or the znode, nor the aftermath of one.
func (h *History) quiet(proc int, znode string, from, to int64) (longest int64) {
	felt := slices.DeleteFunc(slices.Concat(h.Faults, h.Starved), func(f Fault) bool {
		return f.Proc != proc && (f.Proc != 0 || f.Kind == deleteZnode && f.Znode != znode)
	})
	slices.SortFunc(felt, func(a, b Fault) int { return cmp.Compare(a.From, b.From) })
	for _, f := range felt {
		late := toldLate
		if f.Kind == starved && f.To-f.From < int64(SessionTimeout)/6 { // too short to cost the connection
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
