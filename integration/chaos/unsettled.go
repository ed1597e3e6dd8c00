package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// maxUnfinished bounds the list of unfinished attempts; the longest are at the heads of the queues.
const maxUnfinished = 20

// listUnfinished lists these processes' unfinished attempts at a time, the longest first, and each process without any event. A
// candidate of an election is missing until it leads, because it records nothing before.
func listUnfinished(events []Event, at int64, processes []string) (all []string) {
	hasBegun, latest := make(map[string]bool), make(map[string]Event) // by process, by contender
	for _, e := range events {
		if e.At > at {
			break
		}
		hasBegun[processOf(e.By)] = true
		switch e.What {
		case Called, Granted, Releasing, Released, Failed:
			latest[e.By] = e
		case Ended:
			if e.Path == selectorPath { // whose terms end by themselves
				latest[e.By] = e
			}
		default:
		}
	}
	var open []Event
	for by, e := range latest {
		if slices.Contains([]What{Called, Granted, Releasing}, e.What) && slices.Contains(processes, processOf(by)) {
			open = append(open, e)
		}
	}
	slices.SortFunc(open, func(a, b Event) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.By, b.By)) })
	for _, process := range processes {
		if !hasBegun[process] {
			all = append(all, process+": nothing has begun")
		}
	}
	for _, e := range open[:min(maxUnfinished, len(open))] {
		all = append(all, fmt.Sprintf("%s: %s for %v", e.By, e.What, time.Duration(at-e.At).Round(time.Millisecond)))
	}
	if more := len(open) - maxUnfinished; more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return all
}

// processOf returns the name of a contender's process.
func processOf(contender string) string {
	parts := strings.SplitN(contender, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// listQueueHeads lists the first znode of each queue at a time, by the logs; servers may show others.
func (h *History) listQueueHeads(at int64) (all []string) {
	heads, sizes := make(map[string]*Life), make(map[string]int)
	for _, l := range h.Lives {
		if h.monotonic(l.Created) > at || l.Gone != 0 && h.monotonic(l.Gone) <= at {
			continue
		}
		dir := directory(l.Path)
		sizes[dir]++
		if first := heads[dir]; first == nil || l.Token < first.Token {
			heads[dir] = l
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(heads)) {
		first := heads[dir]
		all = append(all, fmt.Sprintf("%s: %d znodes, the first for %v: %s", dir, sizes[dir],
			time.Duration(at-h.monotonic(first.Created)).Round(time.Millisecond), path.Base(first.Path)))
	}
	return all
}
