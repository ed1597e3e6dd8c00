package session

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// A heartbeat is a transaction that checks znodes and changes nothing. The quorum commits it, which
// proves the session.
//
// An audit is a heartbeat that checks the znodes that are watched, at the leader, because the
// event of a deletion may never come. A server that has lost a transaction goes on showing a
// znode that is gone (ZOOKEEPER-4785). A server with the fix of CVE-2024-23944 sends no event to a
// session that may not read the znode any more. A session that holds nothing finds all but the first by reads, which
// cost the quorum nothing: see reread.go.

const (
	maxAudited      = 128       // watches in one transaction
	maxAuditedBytes = 128 << 10 // of their checks; zk.Conn has the same limit for setWatches
)

// startBeatLocked sends an audit, if one is due and there are watches to check, or else a heartbeat,
// if one is due. A heartbeat that was refused is followed by one that checks a znode of this
// session alone, because a watched znode can be the cause of a refusal.
func (s *Session) startBeatLocked(now time.Time, isBeatDue, isAuditDue bool) {
	wasRefused := s.live.trust.lastBeatAt.IsZero()
	if isAuditDue && (!isBeatDue || !wasRefused) {
		s.live.trust.lastAuditAt, s.live.jitter = now, rand.Float64()
		watches := s.watchesBeforeLocked(now.Add(-s.live.period()), (*Watch).lastCheckedAt)
		if watches = watches[:countAuditable(watches)]; len(watches) > 0 {
			s.sendBeatLocked(now, pathsOf(watches), watches)
			return
		}
	}
	if isBeatDue {
		s.sendBeatLocked(now, []string{s.anyOwnNodeLocked()}, nil)
	}
}

// watchesBeforeLocked returns the watches whose time of is not after before, the earliest first. Those that
// are not set yet have no time.
func (s *Session) watchesBeforeLocked(before time.Time, of func(*Watch) time.Time) (watches []*Watch) {
	for _, w := range s.watches {
		if at := of(w); !at.IsZero() && !at.After(before) {
			watches = append(watches, w)
		}
	}
	slices.SortFunc(watches, func(a, b *Watch) int { return of(a).Compare(of(b)) })
	return watches
}

// countAuditable is how many of the first watches fit into one transaction. A server closes the
// connection on a frame that is too long (1 MB by default).
func countAuditable(watches []*Watch) (n int) {
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

// anyOwnNodeLocked is a znode of this session, so that its loss is noticed, or the root.
func (s *Session) anyOwnNodeLocked() string {
	for path := range s.live.nodes {
		return path
	}
	return root
}

// sendBeatLocked sends a heartbeat that checks some znodes, in a task. watches are those of the
// znodes, if it is an audit.
func (s *Session) sendBeatLocked(now time.Time, paths []string, watches []*Watch) {
	epoch := s.link.epoch
	s.live.trust.beatsSentAt, s.live.trust.lastBeatAt = append(s.live.trust.beatsSentAt, now), now
	if s.life.isSealedLocked() {
		return
	}
	c, t := checkCall(paths), s.admitLocked(1)     // now: it is a heartbeat for this connection
	s.backgroundLocked(func(ctx context.Context) { // the answer comes at a disconnect at the latest
		s.sendAdmitted(t, c)
		refusedPath, err := c.waitForChecks(ctx)
		if ctx.Err() != nil {
			return
		}
		isRefused := zkutil.IsRefused(err) && refusedPath != root
		if isRefused && refusedPath != "" {
			s.onCheckRefused(ctx, refusedPath, err, epoch)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, w := range watches {
			if w.path == refusedPath {
				s.live.trust.lastAuditAt = time.Time{} // the rest is still to be checked
			}
			if err != nil && (refusedPath == "" || w.path == refusedPath) {
				break
			}
			w.checkedAt = now
		}
		s.live.trust.beatsSentAt = slices.DeleteFunc(s.live.trust.beatsSentAt, func(sent time.Time) bool { return sent.Equal(now) })
		if isRefused {
			s.live.trust.lastBeatAt = time.Time{} // the next heartbeat, on another znode, may prove the session
		}
		s.wakeKeeper()
	})
}

// checkCall commits a transaction that checks whether znodes exist.
func checkCall(paths []string) *call {
	return &call{Request: wire.Request{Op: proto.OpMulti, Checks: paths}}
}

// waitForChecks waits for the answer to a checkCall. If it is refused, refusedPath is the znode that was the
// cause, "" if that is not known.
func (c *call) waitForChecks(ctx context.Context) (refusedPath string, err error) {
	a, err := c.wait(ctx)
	switch {
	case !zkutil.IsRefused(err):
	case len(c.Checks) == 1:
		refusedPath = c.Checks[0]
	case a.Refused >= 0 && a.Refused < len(c.Checks):
		refusedPath = c.Checks[a.Refused]
	}
	return refusedPath, err
}

// onCheckRefused acts on a refusal by the leader: the znode at path is gone, or may not be read. Its
// hold ends, and its watches fire. The client leaves a server that still shows a znode that is gone,
// unless the connection is another one than that of epoch, because that server may only be behind.
func (s *Session) onCheckRefused(ctx context.Context, path string, err error, epoch uint64) {
	isGone := errors.Is(err, zk.ErrNoNode)
	s.mu.Lock()
	if hold := s.holds[path]; isGone && hold != nil {
		hold.endAsDeletedLocked()
	}
	s.mu.Unlock()
	s.fireWatches(path, zk.EventNotWatching)
	if !isGone || s.wire == nil {
		return
	}
	line := s.wire.Line()
	if _, err := s.readNode(ctx, path); err != nil {
		return
	}
	s.mu.Lock()
	isSameConnection := s.link.isConnected && s.link.epoch == epoch
	s.mu.Unlock()
	if isSameConnection {
		s.Log(slog.LevelWarn, "the server shows a znode that is gone: closing the connection", "znode", path)
		_ = line.Close()
	}
}
