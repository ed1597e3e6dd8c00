package zkutil

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// A heartbeat proves the session by a transaction that checks znodes and changes nothing.
// Now and then it checks the znodes that are watched: an audit. For no event may come when
// one of them goes. A server that has lost a transaction shows what is gone everywhere else
// (ZOOKEEPER-4785 and its like), and one with the mend of CVE-2024-23944 tells nobody who
// may not read the znode any more.

const (
	auditsPerTimeout = 2
	maxAudited       = 128       // watches in one transaction
	maxAuditedBytes  = 128 << 10 // of their checks: what zk.Conn allows itself to set watches again, too
)

// beatAt is when the next heartbeat is due. Where nothing is held a heartbeat that follows a
// slow write would only hold up what comes behind it. Called under s.mu.
func (s *Session) beatAt() time.Time {
	last := latest(s.trust.proven, s.trust.beaten, s.wanted)
	if len(s.holds) == 0 && s.wire != nil {
		last = latest(last, s.wire.lastWritten())
	}
	return last.Add(s.periodLocked())
}

// auditAt is when the next audit is due. Called under s.mu.
func (s *Session) auditAt() time.Time {
	return latest(s.trust.audited, s.wanted).Add(s.periodLocked() * beatsPerTimeout / auditsPerTimeout)
}

// startBeat sends what is due: an audit, if there are watches to check, or else a plain
// heartbeat. Called under s.mu.
func (s *Session) startBeat(now time.Time, beat, audit bool) {
	plain := beat && s.trust.beaten.IsZero() // the last one has failed: a plain one is surer
	if audit && !plain {
		s.trust.audited = now
		if watches := s.unseen(now.Add(-s.periodLocked())); len(watches) > 0 {
			s.check(now, pathsOf(watches), watches)
			return
		}
	}
	if beat {
		s.check(now, []string{s.anyNode()}, nil)
	}
}

// unseen returns the watches whose znodes nobody has seen since some moment, those that were
// seen longest ago first. Called under s.mu.
func (s *Session) unseen(since time.Time) (watches []*Watch) {
	for key, w := range s.watches {
		if key.kind == watchData && !w.seen.IsZero() && !w.seen.After(since) {
			watches = append(watches, w)
		}
	}
	slices.SortFunc(watches, func(a, b *Watch) int { return a.seen.Compare(b.seen) })
	return watches[:auditable(watches)]
}

// auditable is how many of some watches fit into one transaction. A server closes the
// connection on a frame that is too long (1 MB by default).
func auditable(watches []*Watch) (n int) {
	const header = 4 + 1 + 4 + 4 + 4 // of a check, with the length of its path and its version
	bytes := 0
	for n < min(len(watches), maxAudited) {
		bytes += header + len(watches[n].path)
		if n > 0 && bytes > maxAuditedBytes {
			break
		}
		n++
	}
	return n
}

func pathsOf(watches []*Watch) (paths []string) {
	for _, w := range watches {
		paths = append(paths, w.path)
	}
	return paths
}

const root = "/"

// anyNode is a znode of ours, so that its loss is noticed, or the root. Called under s.mu.
func (s *Session) anyNode() string {
	for path := range s.nodes {
		return path
	}
	return root
}

// check sends a heartbeat from a task of its own, about some znodes. Called under s.mu.
func (s *Session) check(now time.Time, paths []string, watches []*Watch) {
	epoch := s.epoch
	s.trust.beats, s.trust.beaten = append(s.trust.beats, now), now
	s.backgroundLocked(func(ctx context.Context) { // zk.Conn answers at a disconnect at the latest
		culprit, err := s.prove(ctx, paths...)
		if ctx.Err() != nil {
			return
		}
		unfit := refused(err) && culprit != root
		if unfit && culprit != "" {
			s.disproved(ctx, culprit, err, epoch)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, w := range watches {
			if w.path == culprit {
				s.trust.audited = time.Time{} // the rest is still to be checked
			}
			if err != nil && (culprit == "" || w.path == culprit) {
				break
			}
			w.seen = now
		}
		s.trust.beats = slices.DeleteFunc(s.trust.beats, func(sent time.Time) bool { return sent.Equal(now) })
		if unfit {
			s.trust.beaten = time.Time{} // another znode may still prove the session
		}
		s.wakeKeeper()
	})
}

// prove commits a transaction that checks whether znodes are there. The culprit is the one
// for whose sake it was refused, if that is known.
func (s *Session) prove(ctx context.Context, paths ...string) (culprit string, err error) {
	checks := make([]any, len(paths))
	for i, path := range paths {
		checks[i] = &zk.CheckVersionRequest{Path: path, Version: -1}
	}
	answers, err := do(ctx, s, request[[]zk.MultiResponse]{write: true, run: func(conn *zk.Conn) ([]zk.MultiResponse, error) {
		return conn.Multi(checks...)
	}})
	failed := slices.IndexFunc(answers, func(answer zk.MultiResponse) bool { return answer.Error != nil })
	switch {
	case !refused(err):
	case len(paths) == 1:
		culprit = paths[0]
	case failed >= 0 && failed < len(paths):
		culprit = paths[failed]
	}
	return culprit, err
}

// disproved acts on the leader's word that a znode is gone, or may not be read: whoever
// relies on it looks again. A server that still shows what is gone is left for another.
func (s *Session) disproved(ctx context.Context, path string, err error, epoch uint64) {
	gone := errors.Is(err, zk.ErrNoNode)
	s.mu.Lock()
	if hold := s.holds[path]; gone && hold != nil {
		hold.deletedLocked()
	}
	s.mu.Unlock()
	s.fire(path, zk.EventNotWatching)
	if !gone || s.wire == nil {
		return
	}
	line := s.wire.line()
	if _, err := do(ctx, s, request[node]{run: get(path)}); err != nil {
		return
	}
	s.mu.Lock()
	same := s.connected && s.epoch == epoch
	s.mu.Unlock()
	if same {
		s.log(slog.LevelWarn, "the server shows a znode that is gone: closing the connection", "znode", path)
		_ = line.Close()
	}
}
