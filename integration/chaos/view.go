package chaos

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// View is what one server shows while nothing is harmed. Servers that have heard of each
// other for a while agree, or ZooKeeper breaks its word: see Ghosts.
type View struct {
	At     int64
	Server int
	Procs  []int               // whose lines lead there
	Queues map[string][]string // the names below each lock's path
}

// viewIn is how long a server may take to show everything.
const viewIn = 2 * time.Second

// look records what each server shows that answers in time.
func (r *run) look(ctx context.Context, h *History) {
	ctx, cancel := context.WithTimeout(ctx, viewIn)
	defer cancel()
	views := make([]*View, len(r.servers.Servers()))
	var all sync.WaitGroup
	for i, server := range r.servers.Servers() {
		all.Go(func() {
			queues, err := show(ctx, server)
			if err == nil {
				views[i] = &View{At: Now(), Server: i, Procs: r.connected(i), Queues: queues}
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

// show lists the queues as a server has them.
func show(ctx context.Context, server string) (map[string][]string, error) {
	conn, _, err := zk.Connect([]string{server}, SessionTimeout, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	var closed sync.Once
	end := func() { closed.Do(conn.Close) }
	defer end()
	defer context.AfterFunc(ctx, end)()
	queues := make(map[string][]string)
	for _, dir := range dirs() {
		queues[dir], _, err = conn.Children(dir)
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // the container may have been reaped
			return nil, err
		}
	}
	return queues, nil
}

// Ghost is a znode that a server shows though it is gone.
type Ghost struct {
	*Life
	View View
}

// Ghosts are the znodes that a server showed when they had been gone, by the logs of the
// majority, for longer than a server may be behind without losing its place among the others.
func (h *History) Ghosts() (all []Ghost) {
	lives := h.byPath()
	for _, view := range h.Views {
		for dir, names := range view.Queues {
			for _, name := range names {
				if l := lives[dir+"/"+name]; l != nil && l.Gone != 0 && h.monotonic(l.Gone) < view.At-toldLate {
					all = append(all, Ghost{l, view})
				}
			}
		}
	}
	return all
}

// GoneFor is for how long the ghost's znode had been gone.
func (h *History) GoneFor(g Ghost) time.Duration {
	return time.Duration(g.View.At - h.monotonic(g.Gone))
}

// Disputed are the znodes about which the servers contradict each other, and what shows it: by the logs
// of the majority each was there, and stayed, and yet a server did not have it for longer than it may be
// behind, or the leader refused a check because it was gone. Nobody can say then who holds what it stands for.
func (h *History) Disputed() map[*Life]string {
	all := h.refused()
	for _, l := range h.Lives {
		from, to := h.monotonic(l.Created)+toldLate, h.end()
		if l.Gone != 0 {
			to = h.monotonic(l.Gone)
		}
		if from >= to {
			continue // mostly, and then without a look at all the views
		}
		for _, view := range h.Views {
			names, shown := view.Queues[directory(l.Path)]
			if shown && from < view.At && view.At < to && !slices.Contains(names, path.Base(l.Path)) {
				all[l] = fmt.Sprintf("server %d, of processes %v, lacks it", view.Server, view.Procs)
				break
			}
		}
	}
	return all
}

// refused are the znodes that were there by the logs when a client left its server because it showed
// them, and that the leader, too, said were gone: by the same logs it refused a check of that client.
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

// views: nobody leaves a server that shows what is there.
func (v *Verdict) views(h *History) {
	v.Views, v.Ghosts, v.Disputed = len(h.Views), h.Ghosts(), h.Disputed()
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
