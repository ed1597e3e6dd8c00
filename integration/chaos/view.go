package chaos

import (
	"context"
	"errors"
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
	for _, path := range paths {
		queues[path], _, err = conn.Children(path)
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
		for path, names := range view.Queues {
			for _, name := range names {
				if l := lives[path+"/"+name]; l != nil && l.Gone != 0 && h.monotonic(l.Gone) < view.At-toldLate {
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

// views: nobody leaves a server that shows what is there.
func (v *Verdict) views(h *History) {
	v.Views, v.Ghosts = len(h.Views), h.Ghosts()
	lives := h.byPath()
	for _, e := range h.Events {
		if e.What != Haunted {
			continue
		}
		if l := lives[e.Znode]; l != nil && (l.Gone == 0 || h.monotonic(l.Gone) > e.At+clockError) {
			v.violation(e.At, directory(e.Znode), "%s leaves its server for the sake of %s, which is there", e.By, e.Znode)
		}
	}
}
