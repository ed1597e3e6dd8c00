package queue

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/shared"
)

// HolderAfter is how long a wait has to last before the waiter reads the holder for the WaitError. Most waits are shorter, and cost no
// read.
const HolderAfter = time.Second

// holderReads has the latest read of a holder in a queue. All waiters of a session share it.
type holderReads struct {
	mu     sync.Mutex // protects latest
	latest *holderRead
}

// holderRead is a read of the contender that was first at a look. If that contender left, the read lists the queue and reads the
// contender that is first now.
type holderRead struct {
	path    string // of the contender that was first
	beganAt time.Time
	done    chan struct{} // closed when the fields below are set

	queue  []Contender // nil if the contender still exists
	holder Participant
	err    error
}

// holderKey is the key of the holderReads of a queue in its session.
type holderKey struct{ dir, prefix string }

// readHolder returns the latest read, if that is of the same contender and began within HolderAfter, and otherwise a new one.
func (w *waiter) readHolder() *holderRead {
	w.status.reads = shared.Value(w.s.Shared(), holderKey{w.q.Dir, w.q.Prefix}, func() *holderReads { return &holderReads{} })
	reads, path := w.status.reads, w.status.Holder.Path
	reads.mu.Lock()
	defer reads.mu.Unlock()
	if latest := reads.latest; latest != nil && latest.path == path && time.Since(latest.beganAt) < HolderAfter {
		return latest
	}
	read, q := &holderRead{path: path, beganAt: time.Now(), done: make(chan struct{})}, w.q
	reads.latest = read
	isRunning := w.s.Background(func(ctx context.Context) { // ends with its requests; joined by the session
		defer close(read.done)
		n, err := q.Session.ReadPeer(ctx, path)
		if errors.Is(err, zk.ErrNoNode) {
			if read.queue, err = q.ListContenders(ctx); err == nil && len(read.queue) > 0 {
				path = zkutil.Join(q.Dir, read.queue[0].Name)
				n, err = q.Session.ReadPeer(ctx, path)
			}
		}
		read.holder, read.err = ParticipantOf(path, n), err
	})
	if !isRunning {
		read.err = zkutil.ErrClosed
		close(read.done)
	}
	return read
}

// expectHolderRead schedules the read of the holder, unless the holder is known.
func (w *waiter) expectHolderRead() {
	s := w.status
	s.holderAt = time.Time{}
	if !s.startedAt.IsZero() && s.Holder.Path != "" && s.Holder.Token == 0 {
		s.holderAt = s.startedAt.Add(HolderAfter)
	}
}

// untilHolder returns the time until the waiter reads the holder.
func (s *WaitStatus) untilHolder() time.Duration {
	if s == nil {
		return math.MaxInt64
	}
	return untilDue(s.holderAt)
}

// readHolderIfDue reads who is first, so that a WaitError can name the holder from any position. After a failure the holder stays
// unknown. The next look at the queue is not affected.
func (w *waiter) readHolderIfDue(ctx context.Context) {
	status := w.status
	if status.untilHolder() > 0 {
		return
	}
	status.holderAt = time.Time{}
	read := w.readHolder()
	select {
	case <-read.done:
	case <-ctx.Done():
		return
	}
	if read.err != nil {
		return
	}
	if read.queue != nil {
		own, isListed := slices.BinarySearchFunc(read.queue, w.self, Contender.compare)
		if !isListed || own == 0 {
			return // the next look shows it, too
		}
		status.Position = own + 1
	}
	status.Holder = read.holder
	w.q.reportStatus(*status)
}
