package chaos

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
)

// Remnant is what a server still has when all contenders are done.
type Remnant struct {
	Znode   string // "": the server does not report it
	Watcher string // the session that watches the znode; "": the znode itself remains
	Trouble string // why the server does not report
}

// left has the leftovers of finished contenders at the servers, in living sessions. The sessions of killed processes
// may expire later.
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
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // the container may be reaped
			all = append(all, Remnant{Trouble: err.Error()})
		}
		for _, name := range names {
			all = append(all, Remnant{Znode: path + "/" + name})
		}
	}
	for _, server := range r.servers.Servers() {
		watches, err := zkadmin.Watches(ctx, server)
		if err != nil {
			all = append(all, Remnant{Trouble: err.Error()})
		}
		for _, w := range watches {
			all = append(all, Remnant{Znode: w.Path, Watcher: w.Session})
		}
	}
	return all
}

// withoutGhosts leaves out znodes that were deleted before a time by the logs, or never created, although a server shows them.
// It also leaves out the watches on such ghosts.
func (h *History) withoutGhosts(shown []Remnant, at int64) []Remnant {
	lives, ghosts := h.byPath(), h.Ghosts()
	return slices.DeleteFunc(shown, func(r Remnant) bool {
		l, isKnown := lives[r.Znode]
		switch {
		case r.Znode == "":
			return false
		case r.Watcher != "":
			return slices.ContainsFunc(ghosts, func(g Ghost) bool { return g.Path == r.Znode })
		case !isKnown:
			return true
		default:
			return l.Gone != 0 && h.monotonic(l.Gone) < at
		}
	})
}
