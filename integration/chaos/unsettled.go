package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// maxUnfinished is how many unfinished attempts are listed: those at the head of a queue are the longest.
const maxUnfinished = 20

// listUnfinished lists the attempts that were going on at a time, the longest first, and the processes that had none yet. Those of
// elections are missing: a candidate records nothing until it leads.
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

// listQueueHeads lists the first znode of each queue, as the first server shows it that answers.
func (r *run) listQueueHeads(ctx context.Context) (all []string) {
	for i, server := range r.servers.Servers() {
		heads, err := listHeadsAt(ctx, server)
		if err == nil {
			return append(all, heads...)
		}
		all = append(all, fmt.Sprintf("server %d: %v", i, err))
	}
	return all
}

func listHeadsAt(ctx context.Context, server string) (all []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, viewIn)
	defer cancel()
	conn, disconnect, err := connect(ctx, server)
	if err != nil {
		return nil, err
	}
	defer disconnect()
	for _, dir := range dirs() {
		names, _, err := conn.Children(dir)
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // the container may have been reaped
			return nil, err
		}
		if len(names) == 0 {
			continue
		}
		sortBySequence(names)
		id, stat, err := conn.Get(dir + "/" + names[0])
		switch {
		case errors.Is(err, zk.ErrNoNode): // the queue goes on
			all = append(all, fmt.Sprintf("%s: %d, the first has just gone", dir, len(names)))
		case err != nil:
			return nil, err
		default:
			all = append(all, fmt.Sprintf("%s: %d, first %s of %q, created at %v", dir, len(names), names[0], id,
				time.UnixMilli(stat.Ctime).UTC().Format(time.TimeOnly)))
		}
	}
	return all, nil
}
