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

	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
)

// settle asks every contender for one more lease, and returns how long that took.
func (r *run) settle(healed int64) time.Duration {
	for _, c := range r.clients {
		c.finish()
	}
	late := time.After(2 * healedIn) // to tell who is slow from who is stuck
	var last int64
	for _, c := range r.clients {
		for c.idle.Load() == 0 {
			select {
			case <-c.gone:
				if c.idle.Load() == 0 {
					return 0
				}
			case <-late:
				return 0
			case <-time.After(10 * time.Millisecond):
			}
		}
		last = max(last, c.idle.Load())
	}
	return time.Duration(last - healed)
}

// unfinished is what the contenders were about at a time, and for how long, without those
// between two attempts and those of killed processes.
func unfinished(events []Event, at int64) (all []string) {
	last, lives := make(map[string]Event), make(map[int]string)
	for _, e := range events {
		if e.At > at {
			break
		}
		lives[e.Proc] = life(e.By)
		switch e.What {
		case Called, Granted, Releasing, Released, Failed:
			last[e.By] = e
		default:
		}
	}
	for by, e := range last {
		if e.What != Released && e.What != Failed && life(by) == lives[e.Proc] {
			all = append(all, fmt.Sprintf("%s %s, %v before", by, e.What, time.Duration(at-e.At).Round(time.Millisecond)))
		}
	}
	slices.Sort(all)
	return all
}

// heads are the znodes that have been in each queue for longest, and whose they are.
func (r *run) heads() (all []string) {
	for _, dir := range dirs() {
		names, _, err := r.admin.Children(dir)
		if err != nil || len(names) == 0 {
			continue // the container may have been reaped
		}
		head := slices.MinFunc(names, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
		owner, stat, err := r.admin.Get(dir + "/" + head)
		if err != nil {
			continue
		}
		all = append(all, fmt.Sprintf("%d in %s, first %s of %q in session 0x%x, made at %v", len(names), dir, head, owner,
			stat.EphemeralOwner, time.UnixMilli(stat.Ctime).UTC().Format(time.TimeOnly)))
	}
	return all
}

// number is what a server has given to a sequential znode.
func number(name string) string { return name[max(0, len(name)-10):] }

// life is the name of a contender's process.
func life(by string) string {
	parts := strings.SplitN(by, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// left is what remains at the servers of contenders that are done, in sessions that stand.
// The sessions of killed processes may take their time to expire.
func (r *run) left(ctx context.Context) (all []string) {
	for begun := time.Now(); ; pause(ctx, 100*time.Millisecond) {
		all = r.leftNow(ctx)
		if len(all) == 0 || time.Since(begun) > 2*SessionTimeout || ctx.Err() != nil {
			return all
		}
	}
}

func (r *run) leftNow(ctx context.Context) (all []string) {
	for _, path := range dirs() {
		names, _, err := r.admin.Children(path)
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // the container may have been reaped
			names = []string{err.Error()}
		}
		for _, name := range names {
			all = append(all, path+"/"+name)
		}
	}
	for _, server := range r.servers.Servers() {
		watches, err := zkadmin.FourLetter(ctx, server, "wchs")
		if err != nil || !strings.Contains(watches, "Total watches:0") {
			all = append(all, fmt.Sprintf("watches at a server: %s %v", watches, err))
		}
	}
	return all
}
