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
}

// Faults that somebody else commits behind the holder's back.
const (
	pauseClient   = "client paused"
	expireSession = "session expired"
	deleteZnode   = "znode deleted"
)

// Hold is one attempt, and the lease that came of it.
type Hold struct {
	By, Path, Znode, Cause              string
	Proc, Try                           int
	Token                               int64
	Called, Granted, Ended              int64 // 0: did not happen
	GrantedWall                         int64
	Rank                                int // among the path's leases, by token
	Life                                *Life
	reacquired, rereleased, led, leadAt []int64
}

// History is everything that was recorded.
type History struct {
	Events []Event
	Faults []Fault
	Lives  []*Life
	Offset int64 // wall clock minus monotonic clock, in nanoseconds
}

// holds returns the leases of each path, by token.
func (h *History) holds() map[string][]*Hold {
	type key struct {
		by  string
		try int
	}
	all := make(map[key]*Hold)
	led := make(map[int64]*Hold)
	called := make(map[key]int64)
	lives := make(map[string]*Life)
	for _, l := range h.Lives {
		lives[l.Path] = l
	}
	byPath := make(map[string][]*Hold)
	for _, e := range h.Events {
		k := key{e.By, e.Try}
		if e.What == Called {
			called[k] = e.At
			continue
		}
		if e.What == Granted {
			hold := &Hold{
				By: e.By, Path: e.Path, Proc: e.Proc, Try: e.Try, Token: e.Token, Znode: e.Znode,
				Called: cmp.Or(called[k], e.At), Granted: e.At, GrantedWall: e.Wall, Life: lives[e.Znode],
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

func (hold *Hold) tell(e Event) {
	switch e.What {
	case Ended:
		hold.Ended, hold.Cause = e.At, e.Text
	case Reacquired:
		hold.reacquired = append(hold.reacquired, e.At)
	case Rereleased:
		hold.rereleased = append(hold.rereleased, e.At)
	default:
	}
}

// gone is when the hold's znode went, on the monotonic clock.
func (h *History) gone(hold *Hold) int64 { return hold.Life.Gone*int64(time.Millisecond) - h.Offset }

// toldLate is how long after a fault of somebody else's its effect may be heard of: the
// server hangs up, the client reconnects and is told.
const toldLate = int64(4 * time.Second)

// excuse names the fault for which a hold's context may have stood at a moment when
// somebody else had the lock: "" is none.
func (h *History) excuse(hold *Hold, at int64) string {
	for _, f := range h.Faults {
		switch f.Kind {
		case pauseClient:
			if f.Proc == hold.Proc && f.From <= at && hold.Ended <= f.To+toldLate && hold.Granted <= f.To {
				return f.Kind
			}
		case expireSession:
			if f.Proc == hold.Proc && f.From <= at && hold.Ended >= f.From && hold.Ended <= f.To+toldLate {
				return f.Kind
			}
		case deleteZnode:
			if f.Znode == hold.Znode {
				return f.Kind
			}
		}
	}
	return ""
}

// directory is where a znode lies.
func directory(znode string) string { return path.Dir(znode) }
