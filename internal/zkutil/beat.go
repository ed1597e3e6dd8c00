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
// It also finds out what no event tells. A server that has lost a transaction goes on showing
// what is gone everywhere else (ZOOKEEPER-4785 and its like), and one with the mend of
// CVE-2024-23944 tells nobody who may not read the znode any more. Whoever relies on it would
// wait for good. So each watch that stands is checked from time to time: an audit.

const (
	auditsPerTimeout = 2
	maxAudited       = 128 // watches in one transaction
)

// beatAt is when the next heartbeat is due. Called under s.mu, as all up to startBeat.
func (s *Session) beatAt() time.Time {
	return latest(s.trust.proven, s.trust.beaten, s.wanted).Add(s.period())
}

// auditAt is when the next audit is due: not soon after a reconnect, which sets all watches
// again.
func (s *Session) auditAt() time.Time {
	return latest(s.trust.audited, s.since, s.wanted).Add(s.auditPeriod())
}

func (s *Session) auditPeriod() time.Duration {
	return s.period() * beatsPerTimeout / auditsPerTimeout
}

// unvouched returns the watches whose znodes nothing has vouched for of late, the oldest
// first.
func (s *Session) unvouched(now time.Time) (watches []*Watch) {
	since := now.Add(-s.auditPeriod())
	for key, w := range s.watches {
		if key.kind == watchData && !w.vouched.IsZero() && !w.vouched.After(since) {
			watches = append(watches, w)
		}
	}
	slices.SortFunc(watches, func(a, b *Watch) int { return a.vouched.Compare(b.vouched) })
	return watches[:min(len(watches), maxAudited)]
}

// startBeat sends a heartbeat from a task of its own if one is due, or if an audit is and
// there are watches to check. Else it checks a znode of ours, so that its loss is noticed,
// too, or the root.
func (s *Session) startBeat(now time.Time, beat, audit bool) {
	const root = "/"
	paths := []string{root}
	for paths[0] = range s.nodes {
		break
	}
	var watches []*Watch
	if audit {
		s.trust.audited = now
		watches = s.unvouched(now)
	}
	if len(watches) > 0 {
		paths = nil
		for _, w := range watches {
			paths = append(paths, w.path)
		}
	} else if !beat {
		return
	}
	epoch := s.epoch
	s.trust.beat, s.trust.beaten = now, now
	s.backgroundLocked(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, s.patience())
		defer cancel()
		culprit, err := s.prove(ctx, paths...)
		if ctx.Err() != nil {
			return // hung: the keeper sees to it
		}
		unfit := culprit != root && refused(err)
		if unfit && culprit != "" {
			s.disproved(culprit, err, epoch)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil {
			for _, w := range watches {
				w.vouched = now
			}
		}
		if s.trust.beat.Equal(now) {
			s.trust.beat = time.Time{}
		}
		if unfit {
			s.trust.beaten = time.Time{} // another znode may still prove the session
		}
		s.wakeKeeper()
	})
}

// prove commits a transaction that checks whether znodes are there. Where one is not, or may
// not be read, it is the culprit.
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
	case err == nil:
	case len(paths) == 1:
		culprit = paths[0]
	case failed >= 0 && failed < len(paths):
		culprit = paths[failed]
	}
	return culprit, err
}

// disproved acts on the leader's word that a znode is gone, or may not be read. Answers and
// events come in their order: if a watch of this connection still stands, the server does
// not know that the znode is gone, or does not tell. The next one will when it is asked to
// set the watch again.
func (s *Session) disproved(path string, err error, epoch uint64) {
	if !errors.Is(err, zk.ErrNoNode) { // where it may not be read no event tells that it has gone
		s.fire(path, zk.EventNotWatching)
		return
	}
	s.mu.Lock()
	w := s.watches[watchKey{path, watchData}]
	untold := s.wire != nil && s.connected && s.epoch == epoch && w != nil && !w.vouched.IsZero()
	s.mu.Unlock()
	if !untold {
		s.fire(path, zk.EventNodeDeleted)
		return
	}
	s.log(slog.LevelWarn, "the server did not tell that a znode is gone: closing the connection", "znode", path)
	s.wire.distrust()
	s.fire(path, zk.EventNodeDeleted)
	s.wire.cut()
}
