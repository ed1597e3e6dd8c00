package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Verdict is what the direct checks found.
type Verdict struct {
	Violations []string
	First      int64          // when the first of them was, on the monotonic clock
	FirstPath  string         // and where
	Attempts   int            // to acquire
	Leases     int            // granted
	Failures   map[string]int // of attempts that nobody cancelled, by error
	Refused    int            // stale claims and writes
	Wrote      int            // accepted by the rows
	Causes     map[string]int // of the ends of leases
	Excused    map[string]int // overlaps, by the fault that nobody could know of
	Nearest    time.Duration  // from a loss to the next grant; 0: none
}

func (v *Verdict) violation(at int64, path, format string, args ...any) {
	v.Violations = append(v.Violations, fmt.Sprintf(format, args...))
	if v.First == 0 || at < v.First {
		v.First, v.FirstPath = at, path
	}
}

// clockError is what two readings of the servers' wall clock and of ours may differ by.
const clockError = int64(5 * time.Millisecond)

// Judge looks for what must not happen.
func Judge(h *History) *Verdict {
	v := &Verdict{Failures: make(map[string]int), Excused: make(map[string]int), Causes: make(map[string]int)}
	for path, holds := range h.holds() {
		v.Leases += len(holds)
		v.order(h, path, holds)
		v.exclusion(h, path, holds)
		v.reads(h, path, holds)
	}
	v.log(h)
	v.rows(h)
	v.marks(h)
	return v
}

// order: tokens grow from grant to grant, which is the order of the queue.
func (v *Verdict) order(h *History, path string, holds []*Hold) {
	for i, next := range holds[min(1, len(holds)):] {
		before := holds[i]
		if before.Token == next.Token {
			v.violation(next.Granted, path, "%s: token %d was given twice, to %s and %s", path, next.Token, before.By, next.By)
		}
		if next.Granted < before.Granted && h.paused(before, next.Granted) == "" {
			v.violation(next.Granted, path, "%s: %s has token %d %v before %s has %d", path, next.By, next.Token,
				time.Duration(before.Granted-next.Granted), before.By, before.Token)
		}
	}
}

// paused names a pause in which a grant could not be recorded.
func (h *History) paused(hold *Hold, at int64) string {
	for _, f := range h.Faults {
		if f.Kind == pauseClient && f.Proc == hold.Proc && f.From <= at+clockError && hold.Granted <= f.To+toldLate {
			return f.Kind
		}
	}
	return ""
}

// exclusion: a context has ended when the next one begins.
func (v *Verdict) exclusion(h *History, path string, holds []*Hold) {
	for i, hold := range holds {
		if hold.Ended == 0 {
			v.violation(hold.Granted, path, "%s: the context of %s, token %d, has not ended", path, hold.By, hold.Token)
			continue
		}
		v.Causes[hold.Cause]++
		for _, next := range holds[i+1:] {
			distance := next.Granted - hold.Ended
			if distance >= 0 {
				untold := hold.Cause == recipes.ErrSessionLost.Error() && h.excuse(hold, hold.Ended) == ""
				if untold && (v.Nearest == 0 || time.Duration(distance) < v.Nearest) {
					v.Nearest = time.Duration(distance)
				}
				break // those behind came later still
			}
			if next.Granted < hold.Granted {
				continue // see order
			}
			if fault := h.excuse(hold, next.Granted); fault != "" {
				v.Excused[fault]++
				continue
			}
			v.violation(next.Granted, path, "%s: %s, token %d, is granted %v before the context of %s, token %d, ends (%s)", path,
				next.By, next.Token, -time.Duration(distance), hold.By, hold.Token, hold.Cause)
		}
	}
}

// reads: whoever says that he leads has his znode, or could not know better.
func (v *Verdict) reads(h *History, path string, holds []*Hold) {
	for _, hold := range holds {
		for i, asked := range hold.led {
			if hold.Life == nil || hold.Life.Gone == 0 || asked <= h.gone(hold)+clockError {
				continue
			}
			if fault := h.excuse(hold, hold.leadAt[i]); fault != "" {
				v.Excused[fault]++
				continue
			}
			v.violation(asked, path, "%s: %s says that it leads %v after its znode was gone", path, hold.By, time.Duration(asked-h.gone(hold)))
		}
	}
}

// log: at a grant, the servers had removed every znode ahead of it.
func (v *Verdict) log(h *History) {
	lives := make(map[string][]*Life)
	for _, l := range h.Lives {
		lives[directory(l.Path)] = append(lives[directory(l.Path)], l)
	}
	for path, holds := range h.holds() {
		if len(holds) == 0 {
			continue
		}
		queue := lives[directory(holds[0].Znode)]
		ahead, last := 0, (*Life)(nil) // of those ahead, the last to go
		for _, hold := range holds {
			if hold.Life == nil || hold.Life.Token != hold.Token {
				v.violation(hold.Granted, path, "%s: the logs do not tell of %s's token %d", path, hold.By, hold.Token)
				continue
			}
			for ; queue[ahead].Token < hold.Token; ahead++ {
				if l := queue[ahead]; last == nil || l.Gone == 0 || last.Gone != 0 && l.Gone > last.Gone {
					last = l
				}
			}
			if last == nil {
				continue
			}
			if last.Gone == 0 || last.Gone > hold.GrantedWall+clockError/int64(time.Millisecond) {
				v.violation(hold.Granted, path, "%s: %s holds token %d while znode %d is ahead", path, hold.By, hold.Token, last.Token)
			}
		}
	}
}

// rows: no update is lost.
func (v *Verdict) rows(h *History) {
	written := make(map[string]map[int64]bool)
	for _, e := range h.Events {
		switch e.What {
		case Called:
			v.Attempts++
		case Refused:
			v.Refused++
		case Unsure:
			v.violation(e.At, e.Path, "%s: no answer from the row: %s", e.By, e.Text)
		case Left:
			if e.Text != "" {
				v.violation(e.At, e.Path, "%s leaves goroutines: %s", e.By, e.Text)
			}
		case Failed:
			if !strings.Contains(e.Text, "context ") && !strings.Contains(e.Text, "not acquired") {
				v.Failures[e.Text[strings.LastIndex(e.Text, ":")+1:]]++
			}
		case Wrote:
			v.Wrote++
			if written[e.Path] == nil {
				written[e.Path] = make(map[int64]bool)
			}
			if written[e.Path][e.Value] {
				v.violation(e.At, e.Path, "%s: value %d was written twice: an update is lost", e.Path, e.Value)
			}
			written[e.Path][e.Value] = true
		default:
		}
	}
}

// marks: in the order of transactions the guarded znode saw no token after a higher one.
func (v *Verdict) marks(h *History) {
	var marks []Event
	for _, e := range h.Events {
		if e.What == Marked {
			marks = append(marks, e)
		}
	}
	slices.SortFunc(marks, func(a, b Event) int { return cmp.Compare(a.Zxid, b.Zxid) })
	for i, e := range marks[min(1, len(marks)):] {
		if e.Token < marks[i].Token {
			v.violation(e.At, e.Path, "%s: token %d writes the znode after %d", e.Path, e.Token, marks[i].Token)
		}
	}
}

// PeerReport is what the workload found about a lock without contexts and tokens.
type PeerReport struct {
	Leases      int
	Overlaps    map[string]int // of holds, by the fault that the holder could not know of; "": none
	LostUpdates int
	Failures    map[string]int
}

// JudgePeer counts; whether that is good enough is not for us to say.
func JudgePeer(h *History) PeerReport {
	r := PeerReport{Overlaps: make(map[string]int), Failures: make(map[string]int)}
	for _, holds := range h.holds() {
		r.Leases += len(holds)
		slices.SortFunc(holds, func(a, b *Hold) int { return cmp.Compare(a.Granted, b.Granted) })
		for i, hold := range holds {
			for _, next := range holds[i+1:] {
				if hold.Ended == 0 || next.Granted >= hold.Ended {
					break
				}
				r.Overlaps[h.excuse(hold, next.Granted)]++
			}
		}
	}
	written := make(map[int64]bool)
	for _, e := range h.Events {
		switch e.What {
		case Wrote:
			if written[e.Value] {
				r.LostUpdates++
			}
			written[e.Value] = true
		case Failed:
			r.Failures[e.Text]++
		default:
		}
	}
	return r
}
