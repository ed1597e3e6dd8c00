package session

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// A session that holds nothing commits nothing while it waits. What it watches it reads once in a session timeout,
// all in one write: so it finds what it was not told of. A server that answers no reads is left. Only a server that
// goes on showing what is gone needs the word of the leader, which is an audit, and rare.

// startReadsLocked reads the znodes that are watched and were not seen in a session timeout, in a task; those that
// were seen longest ago, if there are too many. The others follow every T/6.
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
		reads[i] = readCall(w.path)
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

// onReadAnswered waits for the answer to one of the reads, which were sent at sentAt. A refusal means that the znode
// is gone, or may not be read any more: then its watch fires, because no event may come.
func (s *Session) onReadAnswered(ctx context.Context, w *Watch, read *call, sentAt time.Time) {
	_, err := read.wait(ctx)
	switch {
	case err == nil:
		s.mu.Lock()
		w.seenAt = sentAt
		s.mu.Unlock()
	case zkutil.IsRefused(err):
		s.fireWatches(w.path, zk.EventNotWatching)
	}
}
