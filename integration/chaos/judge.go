package chaos

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Verdict is what the direct checks found.
type Verdict struct {
	Violations []string
	First      int64                // when the first of them was, on the monotonic clock
	FirstPath  string               // and where
	Leases     map[string]int       // granted, by path
	GivenUp    map[string]int       // attempts, by limit
	Causes     map[string]int       // of the ends of leases
	Excused    map[judge.Excuse]int // breaches
	Happened   map[What]int         // events
	Quiet      time.Duration        // the least of the longest undisturbed times of the processes
	Views      int                  // of what a server shows while nothing is harmed
	Glances    int                  // the same, amid faults
	Ghosts     []Ghost              // among that
	Disputed   map[*Life]string     // znodes with contradicting statements of the servers, and the evidence
	Nearest    time.Duration        // from a context's end to the next grant, where the session expired; 0: none
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
	v := &Verdict{
		Leases: make(map[string]int), GivenUp: make(map[string]int), Happened: make(map[What]int),
		Excused: make(map[judge.Excuse]int), Causes: make(map[string]int),
	}
	var ghosts []Ghost
	disputed := make(map[*Life]string)
	for _, era := range h.eras() {
		v.judge(era)
		ghosts = append(ghosts, v.Ghosts...)
		maps.Copy(disputed, v.Disputed)
	}
	v.Ghosts, v.Disputed = ghosts, disputed
	v.rest(h)
	return v
}

// judge looks for violations in the time in which the ensemble keeps its history.
func (v *Verdict) judge(h *History) {
	for path, holds := range h.holds() {
		v.Leases[path] += len(holds)
		switch {
		case limits[path] > 0:
			v.withinLimit(h, path, holds)
		case path == readWritePath:
			v.readersApart(h, path, holds)
		case path == cohortPath:
			v.passes(h, path, holds)
		default:
			v.terms(h, path, holds)
			v.distances(h, holds)
		}
		v.ends(path, holds)
		v.reads(h, path, holds)
	}
	v.views(h)
	v.log(h)
	v.rows(h)
	v.marks(h)
}

// reads: a process that claims to lead has its znode, or could not know better.
func (v *Verdict) reads(h *History, path string, holds []*Hold) {
	for _, hold := range holds {
		for i, asked := range hold.led {
			if hold.Life == nil || hold.Life.Gone == 0 || asked <= h.gone(hold)+clockError {
				continue
			}
			if excuse := h.harm(hold, hold.leadAt[i]); excuse != judge.None {
				v.Excused[excuse]++
				continue
			}
			v.violation(asked, path, "%s: %s says that it leads %v after its znode was gone", path, hold.By, time.Duration(asked-h.gone(hold)))
		}
	}
}

// log: at a grant, all znodes ahead were deleted at the servers, and the first contender of a queue gets the lock.
func (v *Verdict) log(h *History) {
	granted, procs := v.logged(h)
	v.sharedLog(h, granted, procs)
	last := make(map[string]*Life) // of those ahead in a queue, the last to go
	for _, l := range slices.SortedFunc(slices.Values(h.Lives), func(a, b *Life) int { return cmp.Compare(a.Token, b.Token) }) {
		path := directory(l.Path)
		if _, disputed := v.Disputed[l]; disputed || isShared(path) {
			continue
		}
		before := last[path]
		v.behind(h, l, before, granted[l], procs)
		last[path] = laterGone(before, l)
	}
}

// behind: at a grant, the last znode ahead was deleted, and a contender without predecessors is notified.
func (v *Verdict) behind(h *History, l, before *Life, hold *Hold, procs map[int64]int) {
	if hold != nil && before != nil && before.standsAt(hold) {
		v.violation(hold.Granted, hold.Path, "%s: %s holds token %d while znode %d is ahead", hold.Path, hold.By, hold.Token, before.Token)
	}
	if proc, known := procs[l.Session]; known && (before == nil || before.Gone != 0) {
		v.told(h, l, proc, before)
	}
}

// standsAt reports whether the znode was there when a lease was granted.
func (l *Life) standsAt(hold *Hold) bool {
	return l.Gone == 0 || l.Gone > hold.GrantedWall+clockError/ms
}

// laterGone returns the znode that is deleted later. The first may be nil.
func laterGone(a, b *Life) *Life {
	if a == nil || a.Gone != 0 && (b.Gone == 0 || b.Gone > a.Gone) {
		return b
	}
	return a
}

// logged are the holds by their znodes, and the process of each session.
func (v *Verdict) logged(h *History) (granted map[*Life]*Hold, procs map[int64]int) {
	granted, procs = make(map[*Life]*Hold), make(map[int64]int)
	for path, holds := range h.holds() {
		for _, hold := range holds {
			if hold.Life == nil || (hold.Life.Token != hold.Token) != hold.Under {
				v.violation(hold.Granted, path, "%s: the logs do not tell of %s's token %d", path, hold.By, hold.Token)
				continue
			}
			if first := granted[hold.Life]; first == nil || hold.Granted < first.Granted { // others follow in a cohort
				granted[hold.Life] = hold
			}
			procs[hold.Life.Session] = hold.Proc
		}
	}
	h.hear(granted)
	return granted, procs
}

// hear records when the owner of each znode knew of its turn: at the grant or, for several locks acquired together, when it
// had this one.
func (h *History) hear(granted map[*Life]*Hold) {
	lives, byToken := h.byPath(), h.byToken()
	for l, hold := range granted {
		l.Heard = hold.Granted
	}
	for _, e := range h.Events {
		if l := cmp.Or(lives[e.Znode], byToken[tokenKey{e.Path, e.Token}]); e.What == Part && l != nil {
			l.Heard = e.At // before the grant of all, if any
		}
	}
}

// ms is how the servers' logs count.
const ms = int64(time.Millisecond)

// told: the first contender of a quiet queue gets the lock, or leaves by its own choice.
func (v *Verdict) told(h *History, l *Life, proc int, before *Life) {
	from, to := h.monotonic(l.Created), h.end()
	if before != nil {
		from = max(from, h.monotonic(before.Gone))
	}
	switch {
	case l.Heard != 0:
		to = l.Heard
	case l.End == Expired: // since that fault, the notified process may be dead
		to = h.lastFault(proc, h.monotonic(l.Gone))
	case l.Gone != 0:
		to = h.monotonic(l.Gone)
	}
	v.toldIn(h, l, proc, from, to)
}

// toldIn: a process whose znode is first is disturbed only by faults, not for long in quiet times.
func (v *Verdict) toldIn(h *History, l *Life, proc int, from, to int64) {
	from = max(from, v.disputedAhead(h, l))
	if to-from <= toldLate {
		return // mostly, and then without a look at all the faults
	}
	late := toldLate
	if v.isBehindGhost(h, l, proc, from, to) {
		late += int64(servedIn)
	}
	if wait := h.quiet(proc, l.Path, from, to); wait > late {
		v.violation(to, directory(l.Path), "%s of process %d was first for %v of quiet and was not told", l.Path, proc, time.Duration(wait))
	}
}

// disputedAhead is until when a znode ahead of another stood on some of the servers and not on others; 0: there is none. To
// its own server a waiter may be right to wait for it.
func (v *Verdict) disputedAhead(h *History, l *Life) (until int64) {
	for ahead := range v.Disputed {
		switch {
		case ahead.Token >= l.Token || directory(ahead.Path) != directory(l.Path):
		case ahead.Gone == 0:
			return h.end()
		default:
			until = max(until, h.monotonic(ahead.Gone))
		}
	}
	return until
}

// rest: without quiet times, the run does not show that waiters are notified.
func (v *Verdict) rest(h *History) {
	if len(h.Faults) == 0 {
		return
	}
	from, to := h.Faults[0].From, h.Faults[len(h.Faults)-1].From
	v.Quiet = time.Duration(to - from)
	for _, e := range h.Events {
		if e.What == Idle {
			v.Quiet = min(v.Quiet, time.Duration(h.quiet(e.Proc, "", from, to)))
		}
	}
}

// rows: no update is lost, and no process makes a claim that it must not make.
func (v *Verdict) rows(h *History) {
	written := make(map[string]map[int64]bool)
	calls := make(map[string]Event) // the latest of each contender
	for _, e := range h.Events {
		v.Happened[e.What]++
		switch e.What {
		case Called:
			calls[e.By] = e
		case Standing:
			v.violation(e.At, e.Path, "%s: the context of %s, token %d, stands when Release has returned", e.Path, e.By, e.Token)
		case Unnested:
			v.violation(e.At, e.Path, "%s can't acquire what it has: %s", e.By, e.Text)
		case Deserted:
			v.violation(e.At, "", "%s: Shutdown returned while %d functions were at work: %s", e.By, e.Value, e.Text)
		case Repeated:
			v.violation(e.At, e.Path, "%s runs tick %s, which was run before", e.By, e.Text)
		case Unsure:
			v.violation(e.At, e.Path, "%s: no answer from the row: %s", e.By, e.Text)
		case Left:
			if e.Text != "" {
				v.violation(e.At, e.Path, "%s leaves goroutines: %s", e.By, e.Text)
			}
		case Failed:
			called := calls[e.By]
			v.GivenUp[called.Text]++
			if early := called.At + called.Value - e.At; early > 0 || !strings.Contains(e.Text, reasons[called.Text]) {
				v.violation(e.At, e.Path, "%s gives up after %v, limited by %q after %v: %s", e.By,
					time.Duration(e.At-called.At), called.Text, time.Duration(called.Value), e.Text)
			}
		case Wrote:
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

// reasons are the limits that may end an attempt without a lease, with their errors. Without a limit, no attempt ends
// without a lease.
var reasons = map[string]string{
	byDeadline: context.DeadlineExceeded.Error(),
	byCancel:   context.Canceled.Error(),
	byTry:      recipes.ErrNotAcquired.Error(),
	byShutdown: recipes.ErrClosed.Error(),
	unlimited:  "nothing does",
}

// marks: the guarded znode was written only by processes whose own znode existed in that transaction, and no such
// process was refused.
func (v *Verdict) marks(h *History) {
	lives := h.byToken()
	for _, e := range h.Events {
		l := lives[tokenKey{e.Path, e.Token}]
		switch {
		case e.What == Marked && (l == nil || e.Zxid < l.Token || l.GoneBy != 0 && e.Zxid > l.GoneBy):
			v.violation(e.At, e.Path, "%s: token %d writes the znode in %d, when it is stale", e.Path, e.Token, e.Zxid)
		case e.What == Unmarked && l != nil && (l.Gone == 0 || h.monotonic(l.Gone) > e.At+clockError):
			v.violation(e.At, e.Path, "%s: token %d is refused, and good", e.Path, e.Token)
		}
	}
}
