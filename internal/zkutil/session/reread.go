package session

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// What a session watches it reads once in a session timeout, all in one write: so it finds what it was not told of. That costs the
// quorum nothing. While nothing is held, a server that answers no reads is left. Only a server that
// goes on showing what is gone needs the word of the leader, which is an audit, and rare then.

// startReadsLocked reads what is watched and was not seen in a session timeout, in a task; what
// was seen longest ago, if there is too much. The others follow every T/6.
func (s *Session) startReadsLocked(now time.Time) {
	trust := &s.live.trust
	watches := s.watchesBeforeLocked(now.Add(-s.live.period()*zkutil.BeatsPerTimeout), (*Watch).lastSeenAt)
	trust.lastReadAt, trust.isReadingInTurns = now, len(s.watches) > maxAudited
	watches = watches[:min(len(watches), maxAudited)]
	if len(watches) == 0 || s.life.isSealedLocked() {
		return
	}
	trust.readsSentAt = now
	reads, t := make([]*call, len(watches)), s.admitLocked(len(watches)) // now: they are for this connection
	for i, w := range watches {
		reads[i] = w.rereadCall()
	}
	s.backgroundLocked(func(ctx context.Context) { // the answers come at a disconnect at the latest
		s.sendAdmitted(t, reads...)
		for i, w := range watches {
			s.onReadAnswered(ctx, w, reads[i], now)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if trust.readsSentAt.Equal(now) {
			trust.readsSentAt = time.Time{}
		}
		s.wakeKeeper()
	})
}

// rereadCall reads what tells whether the watch has fired, without a watch.
func (w *Watch) rereadCall() *call {
	if w.kind == wire.WatchData {
		return readCall(w.path)
	}
	return &call{Request: wire.Request{Op: proto.OpExists, Path: w.path}} // of children as well: no list, and no right to one
}

// latestChange returns the zxid of the latest change of the kind that the watch fires for, from the stat in an answer.
func (w *Watch) latestChange(a wire.Answer) int64 {
	switch w.kind {
	case wire.WatchData:
		return a.Stat.Mzxid
	case wire.WatchChildren:
		return a.Stat.Pzxid
	default:
		return a.Stat.Czxid
	}
}

// onReadAnswered waits for the answer to one of the reads, which were sent at sentAt. If it shows a change, the event of that
// change was lost, because an event comes ahead of every answer that shows its change: the watch fires. A refusal means that the
// znode is gone, or may not be read any more. Then no event may come, so the watch fires as well.
func (s *Session) onReadAnswered(ctx context.Context, w *Watch, read *call, sentAt time.Time) {
	a, err := read.wait(ctx)
	isRead := err == nil || w.kind == wire.WatchExists && errors.Is(err, zk.ErrNoNode)
	switch {
	case isRead && w.latestChange(a) == w.changedBy:
		s.mu.Lock()
		w.seenAt = sentAt
		s.mu.Unlock()
	case (isRead || zkutil.IsRefused(err)) && !w.HasFired():
		s.fireWatches(w.path, zk.EventNotWatching)
	}
}
