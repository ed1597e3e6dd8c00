package chaos

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/judge"
)

// readMarker and writeMarker are in the names of a read-write lock's znodes.
const readMarker, writeMarker = "-__READ__", "-__WRIT__"

// isShared reports whether the contenders of a directory need not wait for all, or not only for those, ahead.
func isShared(dir string) bool {
	return dir == readWritePath || path.Base(dir) == path.Base(turnsDir) || path.Base(dir) == path.Base(takenDir)
}

func (l *Life) isReader() bool    { return strings.Contains(l.Path, readMarker) }
func (hold *Hold) isReader() bool { return strings.Contains(hold.Znode, readMarker) }

// readersApart: the only lease beside a writer's is that of a reader under it. Readers may hold the lock together.
func (v *Verdict) readersApart(h *History, path string, holds []*Hold) {
	for i, next := range holds {
		v.hasEnded(path, next)
		for _, before := range holds[max(0, i-rivals):i] {
			if before.Token == next.Token && before.isReader() != next.isReader() || before.isReader() && next.isReader() {
				continue
			}
			if before.Ended == 0 || next.Granted >= before.ended() {
				continue
			}
			excuse := h.excuse(before, next.Granted)
			if before.Granted > next.Granted {
				excuse = h.excuseLateGrant(before, next)
			}
			if excuse != judge.None {
				v.Excused[excuse]++
				continue
			}
			v.violation(next.Granted, path, "%s: %s, token %d, holds %s beside %s, token %d, %s (%s)", path, next.By, next.Token,
				kindOf(next), before.By, before.Token, kindOf(before), before.Cause)
		}
	}
}

func kindOf(hold *Hold) string {
	if hold.isReader() {
		return "the read lock"
	}
	return "the write lock"
}

// hasEnded: the context of each lease is over at the end of the run.
func (v *Verdict) hasEnded(path string, hold *Hold) {
	if hold.Ended == 0 {
		v.violation(hold.Granted, path, "%s: the context of %s, token %d, has not ended", path, hold.By, hold.Token)
	}
}

// withinLimit: at no grant were there more leases than permits, by their contexts.
func (v *Verdict) withinLimit(h *History, path string, holds []*Hold) {
	byGrant := slices.SortedFunc(slices.Values(holds), func(a, b *Hold) int { return cmp.Compare(a.Granted, b.Granted) })
	var standing []*Hold
	for _, next := range byGrant {
		v.hasEnded(path, next)
		standing = slices.DeleteFunc(standing, func(hold *Hold) bool { return hold.ended() <= next.Granted })
		standing = append(standing, next)
		if len(standing) <= limits[path] {
			continue
		}
		held := 0
		for _, hold := range standing {
			if excuse := h.excuse(hold, next.Granted); excuse != judge.None {
				v.Excused[excuse]++
			} else {
				held++
			}
		}
		if held > limits[path] {
			v.violation(next.Granted, path, "%s: %d permits are held, the limit is %d: the latest is that of %s, token %d", path, held,
				limits[path], next.By, next.Token)
		}
	}
}

// sharedLog is log for the locks that several may hold together.
func (v *Verdict) sharedLog(h *History, granted map[*Life]*Hold, procs map[int64]int) {
	byDir := make(map[string][]*Life)
	for _, l := range h.Lives {
		if _, disputed := v.Disputed[l]; !disputed && isShared(directory(l.Path)) {
			byDir[directory(l.Path)] = append(byDir[directory(l.Path)], l)
		}
	}
	for _, lives := range byDir {
		slices.SortFunc(lives, func(a, b *Life) int { return cmp.Compare(a.Token, b.Token) })
	}
	v.readWriteLog(h, byDir[readWritePath], granted, procs)
	for path, limit := range limits {
		v.permitsLog(path, limit, byDir[path+takenDir], granted)
		v.turnsLog(h, byDir[path+turnsDir], byDir[path+takenDir], procs)
	}
}

// readWriteLog: at the grant of a writer, all znodes ahead were deleted; at that of a reader, those of writers. A contender
// without such predecessors is notified.
func (v *Verdict) readWriteLog(h *History, lives []*Life, granted map[*Life]*Hold, procs map[int64]int) {
	place := placesOf(lives)
	slices.SortStableFunc(lives, func(a, b *Life) int { return cmp.Compare(place[a], place[b]) })
	var anybody, writer *Life // of those ahead, the last to go
	for len(lives) > 0 {
		n := 1
		for n < len(lives) && place[lives[n]] == place[lives[0]] {
			n++
		}
		for _, l := range lives[:n] {
			before := anybody
			if l.isReader() {
				before = writer
			}
			v.behind(h, l, before, granted[l], procs)
		}
		for _, l := range lives[:n] {
			anybody = laterGone(anybody, l)
			if !l.isReader() {
				writer = laterGone(writer, l)
			}
		}
		lives = lives[n:]
	}
}

// placesOf returns the places of znodes in the queue, given by the transaction of their creation. A reader under a writer has
// the place of the writer with the same number and session that existed at that time.
func placesOf(lives []*Life) map[*Life]int64 {
	number := func(l *Life) string { return l.Path[max(0, len(l.Path)-10):] }
	writers := make(map[string]*Life) // by number, the latest
	places := make(map[*Life]int64, len(lives))
	for _, l := range lives {
		places[l] = l.Token
		if !l.isReader() {
			writers[number(l)] = l
		} else if w := writers[number(l)]; w != nil && w.Session == l.Session && (w.GoneBy == 0 || w.GoneBy > l.Token) {
			places[l] = w.Token
		}
	}
	return places
}

// permitsLog: at the grant of a permit, fewer permits were ahead than there are.
func (v *Verdict) permitsLog(path string, limit int, lives []*Life, granted map[*Life]*Hold) {
	var ahead []*Life
	for _, l := range lives {
		ahead = slices.DeleteFunc(ahead, func(other *Life) bool { return other.Gone != 0 && other.Gone < l.Created })
		if hold := granted[l]; hold != nil {
			n := 0
			for _, other := range ahead {
				if other.standsAt(hold) {
					n++
				}
			}
			if n >= limit {
				v.violation(hold.Granted, path, "%s: %s holds token %d while %d permits are ahead", path, hold.By, hold.Token, n)
			}
		}
		ahead = append(ahead, l)
	}
}

// turnsLog: the contender with the turn gets a permit while none is taken, or leaves by its own choice.
func (v *Verdict) turnsLog(h *History, turns, permits []*Life, procs map[int64]int) {
	var before *Life
	for _, l := range turns {
		if proc, known := procs[l.Session]; known && (before == nil || before.Gone != 0) {
			from, to := h.monotonic(l.Created), h.end()
			if before != nil {
				from = max(from, h.monotonic(before.Gone))
			}
			switch {
			case l.End == Expired:
				to = h.lastFault(proc, h.monotonic(l.Gone))
			case l.Gone != 0:
				to = h.monotonic(l.Gone)
			}
			from, to = h.whenFree(permits, from, to)
			v.toldIn(h, l, proc, from, to)
		}
		before = laterGone(before, l)
	}
}

// whenFree is the part of a span in which no permit was taken: from the end of the last one taken before, to the first one
// taken in the span, which is that of the contender with the turn.
func (h *History) whenFree(permits []*Life, from, to int64) (freeFrom, freeTo int64) {
	start := from
	for _, l := range permits {
		switch created := h.monotonic(l.Created); {
		case created > start:
			to = min(to, created)
		case l.Gone == 0:
			return to, to
		default:
			from = max(from, h.monotonic(l.Gone))
		}
	}
	return from, to
}
