package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
)

// Remnant is what a server still has when all contenders are done.
type Remnant struct {
	Znode string // "": the server does not tell
	What  string // "znode", a watch on it, or why the server does not tell
}

// left is what remains at the servers of contenders that are done, in sessions that stand.
// The sessions of killed processes may take their time to expire.
func (r *run) left(ctx context.Context) (all []Remnant) {
	for begun := time.Now(); ; pause(ctx, 100*time.Millisecond) {
		all = r.leftNow(ctx)
		if len(all) == 0 || time.Since(begun) > 2*SessionTimeout || ctx.Err() != nil {
			return all
		}
	}
}

func (r *run) leftNow(ctx context.Context) (all []Remnant) {
	for _, path := range dirs() {
		names, _, err := r.admin.Children(path)
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // the container may have been reaped
			all = append(all, Remnant{What: err.Error()})
		}
		for _, name := range names {
			all = append(all, Remnant{path + "/" + name, "znode"})
		}
	}
	for _, server := range r.servers.Servers() {
		watches, err := zkadmin.Watches(ctx, server)
		if err != nil {
			all = append(all, Remnant{What: err.Error()})
		}
		all = append(all, watchesLeft(server, watches)...)
	}
	return all
}

// watchesLeft are the watches that a server still has, but for those that are meant to stay: a client that had a lock to itself a few
// times in a row watches its directory for as long as that is there, in place of a list at each acquisition.
func watchesLeft(server string, watches []zkadmin.Watch) (all []Remnant) {
	for _, w := range watches {
		if !slices.Contains(dirs(), w.Path) {
			all = append(all, Remnant{w.Path, fmt.Sprintf("watch of session %s at %s", w.Session, server)})
		}
	}
	return all
}

// withoutGhosts leaves out the znodes that were gone by the logs before a time, or never there, though a server shows them, and
// the watches on them.
func (h *History) withoutGhosts(shown []Remnant, at int64) []Remnant {
	lives := h.byPath()
	return slices.DeleteFunc(shown, func(l Remnant) bool {
		life, isKnown := lives[l.Znode]
		switch {
		case l.Znode == "":
			return false
		case !isKnown:
			return true
		default:
			return life.Gone != 0 && h.monotonic(life.Gone) < at
		}
	})
}
