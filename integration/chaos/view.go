package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
)

// View is what one server shows. After some time without faults, connected servers must agree; ghosts are violations
// by ZooKeeper.
type View struct {
	At         int64
	AmidFaults bool // the server may be behind for as long as it likes
	Server     int
	Procs      []int               // whose lines lead there
	Queues     map[string][]string // the names below each lock's path
	Changed    map[string]int64    // the last transaction that changed each queue, by the server's account
}

// viewIn is how long a server may take to show everything.
const viewIn = 2 * time.Second

// lookEvery is how often servers are asked amid faults.
const lookEvery = 5 * time.Second

// keepLooking records what the servers show amid faults, until ctx ends.
func (r *run) keepLooking(ctx context.Context, h *History) {
	for pause(ctx, lookEvery); ctx.Err() == nil; pause(ctx, lookEvery) {
		r.look(ctx, h, true)
	}
}

// look records the views of the servers that answer within its limit.
func (r *run) look(ctx context.Context, h *History, amidFaults bool) {
	ctx, cancel := context.WithTimeout(ctx, viewIn)
	defer cancel()
	views := make([]*View, len(r.servers.Servers()))
	var all sync.WaitGroup
	for i, server := range r.servers.Servers() {
		all.Go(func() {
			queues, changed, err := show(ctx, server)
			if err == nil {
				views[i] = &View{At: Now(), AmidFaults: amidFaults, Server: i, Procs: r.connected(i), Queues: queues, Changed: changed}
			}
		})
	}
	all.Wait()
	for _, v := range views {
		if v != nil {
			h.Views = append(h.Views, *v)
		}
	}
}

// connected are the processes that have a line to a server.
func (r *run) connected(server int) (procs []int) {
	for _, c := range r.clients {
		if c.lines[server].Live() > 0 {
			procs = append(procs, c.proc)
		}
	}
	return procs
}

// show lists the queues of a server, each with its last transaction.
func show(ctx context.Context, server string) (queues map[string][]string, changed map[string]int64, err error) {
	dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
		line, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, network, address)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = line.Close() }) // zk.Conn waits for a paused server's handshake
		}
		return line, err
	}
	conn, _, err := zk.Connect([]string{server}, SessionTimeout, zk.WithLogInfo(false), zk.WithLogger(silent{}), zk.WithDialer(dial))
	if err != nil {
		return nil, nil, err
	}
	var closed sync.Once
	end := func() { closed.Do(conn.Close) }
	defer end()
	defer context.AfterFunc(ctx, end)()
	queues, changed = make(map[string][]string), make(map[string]int64)
	for _, dir := range dirs() {
		names, stat, err := conn.Children(dir)
		switch {
		case err == nil:
			changed[dir] = stat.Pzxid
		case !errors.Is(err, zk.ErrNoNode): // the container may be reaped
			return nil, nil, err
		}
		queues[dir] = names
	}
	return queues, changed, nil
}

// Ghost is a znode that a server shows although it was deleted or never created. A dead leader may have left it in a server's
// snapshot.
type Ghost struct {
	*Life
	View View
}

// ghostFoundIn bounds how long a waiter waits for a ghost, because its client asks the leader at most that often.
const ghostFoundIn = (core.TimeoutsPerAudit + core.TimeoutsOfJitter) * SessionTimeout

// isBehindGhost reports whether a server connected to the process showed a ghost ahead of its znode during the wait. Views are
// rare, so a ghost seen before the wait counts as well if the process left its server during the wait because of a ghost.
func (v *Verdict) isBehindGhost(h *History, l *Life, proc int, from, to int64) bool {
	hasLeft := slices.ContainsFunc(h.Events, func(e Event) bool {
		return e.What == Haunted && e.Proc == proc && from <= e.At && e.At <= to
	})
	return slices.ContainsFunc(v.Ghosts, func(g Ghost) bool {
		return g.isAheadOf(l) && directory(g.Path) == directory(l.Path) && slices.Contains(g.View.Procs, proc) &&
			(from <= g.View.At || hasLeft) && g.View.At <= to
	})
}

// isAheadOf compares the numbers in the names if the logs don't know the ghost.
func (g Ghost) isAheadOf(l *Life) bool {
	if g.End == Never {
		return sequence(g.Path) < sequence(l.Path)
	}
	return g.Token < l.Token
}

// HasStopped reports whether a leader that some process had a line to has shown a ghost since a time.
func (v *Verdict) HasStopped(leader int, since int64) bool {
	return slices.ContainsFunc(v.Ghosts, func(g Ghost) bool { return g.isInTheWay(since) && g.View.Server == leader })
}

// SettlesIn bounds the time from the last fault until every contender gets the lock once more.
func (v *Verdict) SettlesIn(healed int64) time.Duration {
	if slices.ContainsFunc(v.Ghosts, func(g Ghost) bool { return g.isInTheWay(healed) }) {
		return servedIn
	}
	return healedIn
}

// isInTheWay reports whether a server that some process had a line to has shown the ghost since a time.
func (g Ghost) isInTheWay(since int64) bool { return g.View.At >= since && len(g.View.Procs) > 0 }

// Ghosts returns the znodes that a server showed although they were never created, or were deleted, by the logs of the
// majority, for longer than a server may lag without losing its place among the others.
func (h *History) Ghosts() (all []Ghost) {
	lives := h.byPath()
	for _, view := range h.Views {
		if view.AmidFaults {
			continue
		}
		for dir, names := range view.Queues {
			for _, name := range names {
				switch l := lives[dir+"/"+name]; {
				case l == nil:
					all = append(all, Ghost{&Life{Path: dir + "/" + name, End: Never}, view})
				case l.Gone != 0 && h.monotonic(l.Gone) < view.At-toldLate:
					all = append(all, Ghost{l, view})
				}
			}
		}
	}
	return all
}

// GoneFor is the time since the deletion of the ghost's znode; 0: it was never created.
func (h *History) GoneFor(g Ghost) time.Duration {
	if g.End == Never {
		return 0
	}
	return time.Duration(g.View.At - h.monotonic(g.Gone))
}

// Disputed returns the znodes with contradicting statements of the servers, and the evidence. By the logs of the majority
// each existed, but a server that must have it does not show it, or the leader refused a check because it was deleted. In
// that case, the holder of the lock is undecidable.
//
// A znode missing at a server amid faults counts only if a server shows the znode later. The logs lack transactions that
// servers got by a snapshot, and one of these may be the deletion.
func (h *History) Disputed() map[*Life]string {
	all := h.refused()
	views := slices.SortedFunc(slices.Values(h.Views), func(a, b View) int { return cmp.Compare(a.At, b.At) })
	for _, l := range h.Lives {
		if v := h.lackedBy(l, views); v != nil {
			all[l] = fmt.Sprintf("server %d, of processes %v, lacks it", v.Server, v.Procs)
		}
	}
	return all
}

// lackedBy returns the view of a server that has to have a znode and does not, nil if there is none. The views are in the
// order of their times.
func (h *History) lackedBy(l *Life, views []View) *View {
	created, gone := h.monotonic(l.Created), h.end()
	if l.Gone != 0 {
		gone = h.monotonic(l.Gone)
	}
	var lacking *View // the first one that counts only if a later one shows the znode
	first, _ := slices.BinarySearchFunc(views, created, func(v View, at int64) int { return cmp.Compare(v.At, at) })
	for i := first; i < len(views) && views[i].At < gone; i++ {
		v := &views[i]
		names, isShown := v.Queues[directory(l.Path)]
		hasIt := slices.Contains(names, path.Base(l.Path))
		switch {
		case hasIt && lacking != nil:
			return lacking
		case hasIt || !isShown:
		case !v.AmidFaults && v.At > created+toldLate:
			return v
		case lacking == nil && v.hasCreated(l):
			lacking = v
		}
	}
	return nil
}

// hasCreated reports whether the server must have a znode, even if it lags: by its own account, it executed a later
// transaction of the same queue than the create, and none as late as the deletion.
func (v *View) hasCreated(l *Life) bool {
	changed := v.Changed[directory(l.Path)]
	return changed >= l.Token && (l.GoneBy == 0 || changed < l.GoneBy)
}

// refused returns the znodes that existed, by the logs, when a client left its server for showing them, and that the
// leader also reported as deleted: by the same logs it refused a check of that client.
func (h *History) refused() map[*Life]string {
	all, lives := make(map[*Life]string), h.byPath()
	procs := make(map[int64]int) // of the sessions
	for _, e := range h.Events {
		if l := lives[e.Znode]; l != nil && e.What == Granted {
			procs[l.Session] = e.Proc
		}
	}
	for _, e := range h.Events {
		if e.What != Haunted || !h.isThere(lives[e.Znode], e.At) {
			continue
		}
		for _, r := range h.Refusals {
			at := h.monotonic(r.At)
			if proc, known := procs[r.Session]; known && proc == e.Proc && e.At-toldLate < at && at < e.At+clockError {
				all[lives[e.Znode]] = "the leader refused a check of " + e.By
			}
		}
	}
	return all
}

// isThere reports whether a znode was there, by the logs.
func (h *History) isThere(l *Life, at int64) bool {
	return l != nil && (l.Gone == 0 || h.monotonic(l.Gone) > at+clockError)
}

// views: no client leaves a server for showing an existing znode.
func (v *Verdict) views(h *History) {
	v.Ghosts, v.Disputed = h.Ghosts(), h.Disputed()
	for _, view := range h.Views {
		if view.AmidFaults {
			v.Glances++
		} else {
			v.Views++
		}
	}
	lives := h.byPath()
	for _, e := range h.Events {
		if e.What != Haunted {
			continue
		}
		l := lives[e.Znode]
		if _, disputed := v.Disputed[l]; !disputed && h.isThere(l, e.At) {
			v.violation(e.At, directory(e.Znode), "%s leaves its server for the sake of %s, which is there", e.By, e.Znode)
		}
	}
}
