package queue

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// HolderAfter is how long a wait has to last before the waiter reads the holder for the WaitError. Most waits are shorter, and cost no
// read.
const HolderAfter = time.Second

// holderReads are the reads of who is first in a queue. All waiters of a session share them.
type holderReads struct {
	mu     sync.Mutex // protects latest
	latest *holderRead
}

// holderRead is one listing of a queue, and one read of the first contender.
type holderRead struct {
	beganAt time.Time
	done    chan struct{} // closed when the fields below are set

	queue  []Contender
	holder Participant
	err    error
}

// holderKey is the key of the holderReads of a queue in its session.
type holderKey struct{ dir, prefix string }

// readHolder returns the latest read, if that began within HolderAfter, and otherwise a new one.
func (w *waiter) readHolder() *holderRead {
	w.status.reads = session.Share(w.s, holderKey{w.q.Dir, w.q.Prefix}, func() *holderReads { return &holderReads{} })
	reads := w.status.reads
	reads.mu.Lock()
	defer reads.mu.Unlock()
	if reads.latest != nil && time.Since(reads.latest.beganAt) < HolderAfter {
		return reads.latest
	}
	read, q := &holderRead{beganAt: time.Now(), done: make(chan struct{})}, w.q
	reads.latest = read
	isRunning := w.s.Background(func(ctx context.Context) { // ends with its requests; joined by the session
		defer close(read.done)
		if read.queue, read.err = q.ListContenders(ctx); read.err != nil || len(read.queue) == 0 {
			return
		}
		path := zkutil.Join(q.Dir, read.queue[0].Name)
		n, err := q.Session.ReadPeer(ctx, path)
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
// unknown. The next look at the queue is not affected. Waiters that join again after a lost session share a read that the first of them
// makes at once, and that shows the others only the queue before they joined: they read again later, together.
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
	own, isListed := slices.BinarySearchFunc(read.queue, w.self, Contender.compare)
	switch {
	case read.err != nil:
	case !isListed: // the read of another waiter may have begun before our znode was there
		status.holderAt = time.Now().Add(HolderAfter)
	case own > 0:
		status.Position, status.Holder = own+1, read.holder
		w.q.reportStatus(*status)
	}
}
