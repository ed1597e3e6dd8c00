package group

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Members returns the members of the group, sorted by ID. Members needs no Join. The result is a snapshot, without members that
// leave during the call. Persistent children are not members.
func (g *Group) Members(ctx context.Context) ([]Member, error) {
	if err := g.base.Check("members"); err != nil {
		return nil, err
	}
	s := g.base.Queue.Session
	ctx, cancel := s.WhileOpen(ctx)
	defer cancel()
	names, err := session.Repeat(ctx, s, func() ([]string, error) {
		return session.ListChildren(ctx, s, g.base.Queue.Dir, "members", slices.Clone[[]string])
	})
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, g.base.OpError("members", err)
	}
	nodes := make([]*session.Node, len(names))
	err = readEach(names, func(i int) error {
		n, err := session.Repeat(ctx, s, func() (session.Node, error) { return s.ReadPeer(ctx, zkutil.Join(g.base.Queue.Dir, names[i])) })
		if err == nil {
			nodes[i] = &n
		}
		return err
	})
	if err != nil {
		return nil, g.base.OpError("members", err)
	}
	members := []Member{}
	for i, n := range nodes {
		if n != nil && isMember(names[i], *n) {
			members = append(members, Member{ID: names[i], Data: n.Data})
		}
	}
	return sorted(members), nil
}

// maxReads bounds the reads in flight. A thousand members take four round trips.
const maxReads = 256

// readEach calls read with the index of each name, for many names at a time. A read that finds no znode has no failure. After a failure
// readEach begins no more reads, and returns that failure: mostly all failures are the same.
func readEach(names []string, read func(i int) error) error {
	var (
		readers sync.WaitGroup
		failure atomic.Pointer[error]
	)
	slots := make(chan struct{}, maxReads)
	for i := range names {
		slots <- struct{}{}
		if failure.Load() != nil {
			break
		}
		readers.Go(func() { // ends with its read; joined below
			defer func() { <-slots }()
			if err := read(i); err != nil && !errors.Is(err, zk.ErrNoNode) {
				failure.CompareAndSwap(nil, &err)
			}
		})
	}
	readers.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	return nil
}

// isMember reports whether the znode at name is that of a member. Contenders for a lock on the path are none. A znode that may not
// even be looked at may be one.
func isMember(name string, n session.Node) bool {
	return !queue.IsContender(name) && (n.Stat.Czxid == 0 || !isLasting(n))
}

// isLasting reports whether a znode belongs to no session.
func isLasting(n session.Node) bool { return !zkutil.IsSession(n.Stat.EphemeralOwner) }

func sorted(members []Member) []Member {
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return members
}

// Diff compares two lists by ID, as Members returns them or Watch sends them. joined has the members of after alone, and left those of before
// alone, each in the order of its list. A member with other data is in neither, and so is one that left and joined again in between.
//
//	var before []group.Member
//	for members := range g.Watch(ctx) {
//		joined, left := group.Diff(before, members)
//		…
//		before = members
//	}
func Diff(before, after []Member) (joined, left []Member) {
	return without(after, before), without(before, after)
}

// without returns the members whose ID none of others has.
func without(members, others []Member) (rest []Member) {
	isOther := make(map[string]bool, len(others))
	for _, m := range others {
		isOther[m.ID] = true
	}
	for _, m := range members {
		if !isOther[m.ID] {
			rest = append(rest, m)
		}
	}
	return rest
}

// Watch sends the members, and sends a new list whenever a member joins, leaves, or changes its data. Watch needs no Join. A
// slow reader misses outdated lists. Watch reads each new member once, and keeps a watch on each. On a new connection, Watch
// reads all members again. While the server refuses, Watch retries with backoff. The channel is closed when ctx ends or the
// client is closed.
func (g *Group) Watch(ctx context.Context) <-chan []Member {
	g.base.MustCheck("watch")
	s := g.base.Queue.Session
	lists := make(chan []Member)
	if !s.Background(func(context.Context) {
		defer close(lists)
		ctx, cancel := s.WhileOpen(ctx)
		defer cancel()
		s.Retain() // so that the session re-reads watched znodes
		defer s.Release()
		w := &watcher{g: g, s: s, members: map[string]watched{}}
		defer w.release()
		w.run(ctx, lists)
	}) {
		close(lists)
	}
	return lists
}

// watcher is one Watch.
type watcher struct {
	g       *Group
	s       *session.Session
	dir     *session.Watch     // on the children, or on the creation of the directory
	members map[string]watched // by name
	epoch   uint64             // of the connection on which the members were read
}

// watched is a child, with the watch set by the read.
type watched struct {
	node  session.Node
	watch *session.Watch
}

func (w *watcher) release() {
	w.s.ReleaseWatch(w.dir)
	for _, m := range w.members {
		w.s.ReleaseWatch(m.watch)
	}
}

// run sends each new list until ctx ends.
func (w *watcher) run(ctx context.Context, lists chan<- []Member) {
	var last []Member
	isFirst := true
	for ctx.Err() == nil {
		before := w.s.Snapshot()
		if before.Epoch != w.epoch { // events of the lost connection may be missing
			w.release()
			w.dir, w.members, w.epoch = nil, map[string]watched{}, before.Epoch
		}
		always := func(error) bool { return true }
		var refusal error
		_, err := zkutil.RepeatWhile(ctx, w.s.Config().Retry.Patient().AfterRefusals(), always, func() (struct{}, error) {
			err := w.refresh(ctx)
			if zkutil.IsRefused(err) && !queue.IsSameFailure(err, refusal) {
				refusal = err
				w.s.Log(slog.LevelWarn, "can't read the members; retrying", "path", w.g.base.Path, "err", err)
			}
			return struct{}{}, err
		})
		if err != nil {
			return
		}
		current := w.list()
		var out chan<- []Member
		if isFirst || !reflect.DeepEqual(current, last) {
			out = lists
		}
		if w.await(ctx, before, out, current) {
			last, isFirst = current, false
		}
	}
}

// refresh reads all changes.
func (w *watcher) refresh(ctx context.Context) error {
	names, err := w.listNames(ctx)
	if err != nil {
		return err
	}
	isThere := make(map[string]bool, len(names))
	for _, name := range names {
		isThere[name] = true
	}
	for name, m := range w.members {
		if !isThere[name] || m.watch.HasFired() {
			w.s.ReleaseWatch(m.watch)
			delete(w.members, name)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return w.members[name].watch != nil })
	read := make([]watched, len(names))
	err = readEach(names, func(i int) (err error) {
		read[i].node, read[i].watch, err = w.s.ReadWatchPeer(ctx, zkutil.Join(w.g.base.Queue.Dir, names[i]))
		return err
	})
	for i, m := range read { // also after a failure, so that the next attempt reads the others alone
		if m.watch != nil {
			w.members[names[i]] = m
		}
	}
	return err
}

// listNames returns the names of the children, and renews the watch on them.
func (w *watcher) listNames(ctx context.Context) ([]string, error) {
	w.s.ReleaseWatch(w.dir)
	w.dir = nil
	names, watch, err := session.ListAndWatch(ctx, w.s, w.g.base.Queue.Dir, slices.Clone[[]string])
	if errors.Is(err, zk.ErrNoNode) {
		return w.awaitFirst(ctx)
	}
	w.dir = watch
	return names, err
}

// awaitFirst is listNames for a missing directory. The listing follows the watch, because a member may join before the watch is set.
func (w *watcher) awaitFirst(ctx context.Context) ([]string, error) {
	watch, err := w.s.WatchArrival(ctx, w.g.base.Queue.Dir)
	if err != nil {
		return nil, err
	}
	w.dir = watch
	names, err := session.ListChildren(ctx, w.s, w.g.base.Queue.Dir, "members", slices.Clone[[]string])
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return names, err
}

func (w *watcher) list() []Member {
	members := []Member{}
	for name, m := range w.members {
		if isMember(name, m.node) {
			members = append(members, Member{ID: name, Data: m.node.Data})
		}
	}
	return sorted(members)
}

// await waits for a possible change, and sends the current list meanwhile, unless out is nil. isSent reports that the list was
// sent.
func (w *watcher) await(ctx context.Context, before session.Snapshot, out chan<- []Member, current []Member) (isSent bool) {
	fired := make([]<-chan struct{}, 0, len(w.members)+1)
	fired = append(fired, w.dir.Fired())
	for _, m := range w.members {
		fired = append(fired, m.watch.Fired())
	}
	changed, stop := anyOf(fired)
	defer stop()
	for {
		now := w.s.Snapshot()
		if now.Epoch != before.Epoch || ctx.Err() != nil {
			return isSent
		}
		select {
		case <-now.Changed:
		case out <- current:
			isSent, out = true, nil
		case <-changed:
			return isSent
		case <-ctx.Done():
			return isSent
		}
	}
}

// maxCases is how many channels one goroutine of anyOf waits for. reflect.Select takes 65,536.
const maxCases = 4096

// anyOf returns a channel that is closed when one of some channels, however many, is closed. stop ends the wait.
func anyOf(channels []<-chan struct{}) (first <-chan struct{}, stop func()) {
	closed, stopped := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var waits sync.WaitGroup
	for some := range slices.Chunk(channels, maxCases) {
		waits.Go(func() { // ends with stop; joined there
			cases := make([]reflect.SelectCase, 0, len(some)+1)
			for _, c := range append(slices.Clip(some), stopped) {
				cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)})
			}
			if chosen, _, _ := reflect.Select(cases); chosen < len(some) {
				once.Do(func() { close(closed) })
			}
		})
	}
	return closed, func() {
		close(stopped)
		waits.Wait()
	}
}
