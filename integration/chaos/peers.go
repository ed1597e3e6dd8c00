package chaos

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// Peer is a lock to try in place of the whole library, by holders without tokens.
type Peer string

// The peers. Holders of the first stop when the lease's context ends; the others have
// nothing of the kind, so their holders believe in the lock until they release it.
const (
	Mutex   Peer = "InterProcessMutex" // this library's
	ZKLock  Peer = "zk.Lock"           // go-zookeeper's own
	Curator Peer = "Curator"           // Apache's InterProcessMutex
)

// lacking names the faults that would be unfair to a peer: only our holders know their znodes, and Curator's run in
// another process.
func (p Peer) lacking() []string {
	switch p {
	case "":
		return nil
	case Curator:
		return []string{shutDownClient, loginFails, deleteZnode, killClient, pauseClient, pauseBriefly}
	default:
		return []string{shutDownClient, loginFails, deleteZnode, killClient}
	}
}

// peerLock waits for a lock, and returns its holder's context.
type peerLock func() (held context.Context, unlock func() error, err error)

// contendPeer lets two contend for the first path.
func (w *worker) contendPeer(ctx context.Context) error {
	open := w.openMutex
	if w.Peer == ZKLock {
		open = w.openZKLock
	}
	newLock, closeAll, err := open(ctx)
	if err != nil {
		return err
	}
	var locks []peerLock
	for range 2 {
		lock, err := newLock(fencedPath)
		if err != nil {
			return errors.Join(err, closeAll())
		}
		locks = append(locks, lock)
	}
	var all sync.WaitGroup
	for i, lock := range locks {
		all.Go(func() { w.contender(i, fencedPath).bare(ctx, lock) })
	}
	done := make(chan struct{})
	go func() { // ends with the contenders, or with the process: zk.Lock may hang for good
		defer close(done)
		all.Wait()
	}()
	select {
	case <-done:
		w.rest(ctx)
		return closeAll()
	case <-ctx.Done():
		return nil // who was never served is seen in the history
	}
}

func (w *worker) openMutex(ctx context.Context) (func(path string) (peerLock, error), func() error, error) {
	client, err := w.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	return func(path string) (peerLock, error) {
		m, err := mutex.New(client, path)
		return func() (context.Context, func() error, error) {
			lease, err := m.Acquire(ctx)
			if err != nil {
				return nil, nil, err
			}
			return lease.Context(), lease.Release, nil
		}, err
	}, client.Close, nil
}

func (w *worker) openZKLock(context.Context) (func(path string) (peerLock, error), func() error, error) {
	conn, _, err := zk.Connect(w.Servers, w.Timeout, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		return nil, nil, err
	}
	return func(path string) (peerLock, error) {
		return func() (context.Context, func() error, error) {
			lock := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
			return context.Background(), lock.Unlock, lock.Lock()
		}, nil
	}, func() error { conn.Close(); return nil }, nil
}

// bare contends without a token, and changes the row as its holders do.
func (c *contender) bare(ctx context.Context, lock peerLock) {
	for last := false; !last && ctx.Err() == nil; linger(c.upTo(30*time.Millisecond), ctx.Done()) {
		last = c.finishing()
		c.tries++
		c.note(Event{What: Called, Try: c.tries})
		held, unlock, err := lock()
		if err != nil {
			c.note(Event{What: Failed, Try: c.tries, Text: err.Error()})
			last = false
			continue
		}
		try := c.tries
		c.note(Event{What: Granted, Try: try})
		ended := sync.OnceFunc(func() { c.note(Event{What: Ended, Try: try}) })
		stop := context.AfterFunc(held, ended)
		c.change(ctx, held)
		ended()
		stop()
		text := ""
		if err := unlock(); err != nil {
			text = err.Error()
		}
		c.note(Event{What: Released, Try: try, Text: text})
	}
}

// change reads the row and writes it, some time later, as long as the holder believes in
// his lock.
func (c *contender) change(ctx, held context.Context) {
	value, err := c.row.read(ctx)
	if err != nil {
		return
	}
	long := 20 * time.Millisecond
	if c.rand.IntN(10) == 0 && !c.finishing() { // faults find him at it
		long = 2 * c.Timeout
	}
	linger(c.upTo(long), held.Done())
	if held.Err() == nil && c.row.write(ctx, 0, value+1) == nil {
		c.note(Event{What: Wrote, Try: c.tries, Value: value + 1})
	}
}

// PeerReport is what the workload found about a lock without contexts and tokens.
type PeerReport struct {
	Leases      int
	Overlaps    map[judge.Excuse]int // of holds
	At          int64                // when the last of those without a fault was
	LostUpdates int
	Failures    map[string]int
}

// JudgePeer counts; whether that is good enough is not for us to say.
func JudgePeer(h *History) PeerReport {
	r := PeerReport{Overlaps: make(map[judge.Excuse]int), Failures: make(map[string]int)}
	for _, holds := range h.holds() {
		r.Leases += len(holds)
		slices.SortFunc(holds, func(a, b *Hold) int { return cmp.Compare(a.Granted, b.Granted) })
		for i, hold := range holds {
			r.countOverlaps(h, hold, holds[i+1:])
		}
	}
	written := make(map[int64]bool)
	for _, e := range h.Events {
		switch e.What {
		case Wrote:
			if written[e.Value] {
				r.LostUpdates++
			}
			written[e.Value] = true
		case Failed:
			r.Failures[e.Text]++
		default:
		}
	}
	return r
}

// countOverlaps counts the later holds that began before the end of an earlier one.
func (r *PeerReport) countOverlaps(h *History, hold *Hold, later []*Hold) {
	for _, next := range later {
		if hold.Ended == 0 || next.Granted >= hold.Ended {
			return
		}
		excuse := h.excuse(hold, next.Granted)
		if excuse == judge.None {
			r.At = next.Granted
		}
		r.Overlaps[excuse]++
	}
}
