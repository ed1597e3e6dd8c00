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
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// keeper watches the clock for the session, and sends the proofs. Guarded by Session.mu.
type keeper struct {
	s      *Session
	wakeAt time.Time     // when to decide next; zero: at the next kick
	kick   chan struct{} // wakes the keeper; capacity 1

	nodes map[string]struct{} // znodes of this session, checked by heartbeats
}

func newKeeper() keeper { return keeper{kick: make(chan struct{}, 1), nodes: map[string]struct{}{}} }

// keep is the goroutine that watches the clock for the session, and carries out the plans of
// core.Session.OnTick.
func (k *keeper) keep(ctx context.Context) {
	s := k.s
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.kick:
		case <-ctx.Done():
			return
		}
		nextAt, silent := k.tick(s.clock.Now())
		if silent != nil {
			s.log.Log(slog.LevelWarn, "server does not answer; trying another", "server", silent.Server)
			s.Background(func(context.Context) { // because both may block
				s.wire.Dialer.NoteSilence(silent.Server)
				silent.Abandon()
			})
		}
		if nextAt.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(nextAt.Sub(s.clock.Now()))
		}
	}
}

// tick does everything due at now. tick returns when to decide again, zero for "when something changes", and
// the connection to leave because the server does not answer, nil if none.
func (k *keeper) tick(now time.Time) (nextAt time.Time, silent *wire.Line) {
	s := k.s
	s.mu.Lock()
	defer s.mu.Unlock()
	o, p := s.core.OnTick(k.factsLocked(now))
	s.actLocked(o)
	if p.LeaveServer {
		silent = s.wire.Line()
	}
	if p.Beat || p.Audit {
		k.startBeatLocked(now, p.Beat, p.Audit)
	}
	if p.Read {
		k.startReadsLocked(now)
	}
	k.wakeAt = p.NextAt
	return p.NextAt, silent
}

// factsLocked collects the facts about the connection. It asks the wire only where a heartbeat could be sent, so that a
// wire hanging in a reconnect can't keep the keeper from ending holds.
func (k *keeper) factsLocked(now time.Time) core.Facts {
	s := k.s
	f := core.Facts{Now: now, DoubtedAt: s.watches.doubtedAtLocked()}
	if s.core.HasLineFacts() {
		f.Addresses = s.wire.Dialer.Addresses()
		s.wire.AddTo(&f)
	}
	return f
}

// wakeByLocked makes the keeper check the clock at t or before.
func (k *keeper) wakeByLocked(t time.Time) {
	if k.wakeAt.IsZero() || t.Before(k.wakeAt) {
		k.wake()
	}
}

func (k *keeper) wake() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// BeatPeriod returns the time between two heartbeats.
func (s *Session) BeatPeriod() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Period()
}

// retainLocked marks the session as in use.
func (k *keeper) retainLocked() {
	s := k.s
	if s.core.BeginUse() {
		now := s.clock.Now()
		s.core.OnUse(now)
		k.tellUseLocked()
		k.wakeByLocked(now.Add(s.core.Period()))
	}
}

// releaseLocked ends a retainLocked.
func (k *keeper) releaseLocked() {
	k.s.core.EndUse()
	k.tellUseLocked()
}

// tellUseLocked tells the wire what the session is used for.
func (k *keeper) tellUseLocked() {
	s := k.s
	s.wire.SetInUse(s.core.IsInUse())
	s.wire.SetHolding(s.core.Standing > 0)
}

// Retain marks the session as in use, until Release is called.
func (s *Session) Retain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeper.retainLocked()
}

// Release ends a Retain.
func (s *Session) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeper.releaseLocked()
}

// OnLateProof records a write committed on an abandoned connection.
func (o wireOwner) OnLateProof(w wire.SentWrite) {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeper.recordAnswerLocked(w, nil)
}

// recordAnswerLocked records the server's answer to a write. Only a committed write, where err is nil, proves
// the session.
func (k *keeper) recordAnswerLocked(w wire.SentWrite, err error) {
	s := k.s
	write := core.Write{SentAt: w.At, CameAt: s.clock.Now(), IsCommitted: err == nil, Line: w.Line}
	o, isProof := s.core.OnWriteAnswered(w.ID, write)
	if !isProof {
		return
	}
	s.proofs.onProvenLocked()
	s.wire.DropAbandoned(w.At)
	s.actLocked(o)
}

// A heartbeat is a transaction that checks znodes and changes nothing. The quorum commits the transaction,
// which proves the session.
//
// An audit is a heartbeat that checks the watched znodes, at the leader, because the event of a deletion may
// never come. A server that lost a transaction continues to show a deleted znode (ZOOKEEPER-4785). A server
// with the fix of CVE-2024-23944 sends no event to a session that may no longer read the znode. A session
// without holds detects all but the first case by reads, which cost the quorum nothing: see
// startReadsLocked.

const (
	maxAudited      = 128       // watches in one transaction
	maxAuditedBytes = 128 << 10 // of their checks; zk.Conn has the same limit for setWatches
)

// startBeatLocked sends an audit, if due and if any watches need a check, or otherwise a heartbeat, if due.
// After a refused heartbeat, the next one checks only a znode of this session, because a watched znode can be
// the cause of a refusal.
func (k *keeper) startBeatLocked(now time.Time, isBeatDue, isAuditDue bool) {
	s := k.s
	wasRefused := s.core.NeedsPlainBeat()
	if isAuditDue && (!isBeatDue || !wasRefused) {
		s.core.OnAudit(now, rand.Float64())
		watches := k.watchesBeforeLocked(now.Add(-s.core.Period()), (*Watch).lastCheckedAt)
		slices.SortStableFunc(watches, s.watches.compareDoubtsLocked)
		if watches = watches[:countAuditable(watches)]; len(watches) > 0 {
			k.sendBeatLocked(now, pathsOf(watches), watches)
			return
		}
	}
	if isBeatDue {
		k.sendBeatLocked(now, []string{k.anyOwnNodeLocked()}, nil)
	}
}

// watchesBeforeLocked returns the watches whose time of is not after before, the earliest first. Watches not
// yet set have no time.
func (k *keeper) watchesBeforeLocked(before time.Time, of func(*Watch) time.Time) (watches []*Watch) {
	for _, w := range k.s.watches.byKey {
		if at := of(w); !at.IsZero() && !at.After(before) {
			watches = append(watches, w)
		}
	}
	slices.SortFunc(watches, func(a, b *Watch) int { return of(a).Compare(of(b)) })
	return watches
}

// countAuditable returns how many of the first watches fit into one transaction. A server closes the connection
// on too long a frame (1 MB by default).
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

// anyOwnNodeLocked returns a znode of this session, so that a loss is noticed, or the root.
func (k *keeper) anyOwnNodeLocked() string {
	for path := range k.nodes {
		return path
	}
	return root
}

// sendBeatLocked sends a heartbeat in a task. The heartbeat checks the znodes at paths. watches are the watches
// on these znodes, if the heartbeat is an audit.
func (k *keeper) sendBeatLocked(now time.Time, paths []string, watches []*Watch) {
	s := k.s
	epoch := s.core.Epoch
	s.core.OnBeatSent(now)
	if s.core.Phase >= core.Sealed {
		return
	}
	c, t := checkCall(paths), s.gate.admitLocked(1) // now: the heartbeat is for this connection
	s.backgroundLocked(func(ctx context.Context) {  // answered at a disconnect at the latest
		s.gate.sendAdmitted(t, c)
		refusedPath, err := c.waitForChecks(ctx)
		if ctx.Err() != nil {
			return
		}
		isRefused := zkutil.IsRefused(err) && refusedPath != root
		if isRefused && refusedPath != "" {
			k.onCheckRefused(ctx, refusedPath, err, epoch, czxidOf(s, watches, refusedPath))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, w := range watches {
			if w.path == refusedPath {
				s.core.OnAuditRefused()
			}
			if err != nil && (refusedPath == "" || w.path == refusedPath) {
				break
			}
			w.checkedAt = now
			delete(s.watches.doubted, w)
		}
		s.core.OnBeatEnded(now, isRefused)
		k.wake()
	})
}

// czxidOf returns the czxid of the znode that one of the watches was set on, 0 if none was.
func czxidOf(s *Session, watches []*Watch, path string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range watches {
		if w.path == path && w.czxid != 0 {
			return w.czxid
		}
	}
	return 0
}

// checkCall returns a transaction that checks whether znodes exist.
func checkCall(paths []string) *call {
	return &call{Request: wire.Request{Op: proto.OpMulti, Checks: paths}}
}

// waitForChecks waits for the answer to a checkCall. After a refusal, refusedPath is the znode that caused the
// refusal, "" if unknown.
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

// onCheckRefused acts on a refusal by the leader: the znode at path is gone, or may not be read. The hold on
// path ends, if the znode is deleted, and the watches fire. The client then leaves a server that still shows a
// deleted znode, unless the connection is newer than epoch, because the new server may only be behind. czxid is
// that of the znode that was watched, 0 if unknown: the path may have another znode by now.
func (k *keeper) onCheckRefused(ctx context.Context, path string, err error, epoch uint64, czxid int64) {
	s := k.s
	isGone := errors.Is(err, zk.ErrNoNode)
	s.mu.Lock()
	if hold := s.holds.byPath[path]; isGone && hold != nil {
		hold.endAsDeletedLocked()
	}
	s.mu.Unlock()
	s.watches.fire(path, zk.EventNotWatching)
	if !isGone {
		return
	}
	line := s.wire.Line()
	n, err := s.gate.readNode(ctx, path)
	if err != nil || czxid != 0 && n.Stat.Czxid != czxid {
		return
	}
	s.mu.Lock()
	isSameConnection := s.core.IsConnected && s.core.Epoch == epoch
	s.mu.Unlock()
	if isSameConnection {
		s.log.Log(slog.LevelWarn, "server shows a deleted znode; closing the connection", "znode", path)
		_ = line.Close()
	}
}

// A session reads every watched znode once per session timeout, all in one write to the socket, to catch lost
// notifications. The reads cost the quorum nothing. While nothing is held, the client leaves a server that
// answers no reads. Only a server that continues to show deleted znodes has to be checked against the leader,
// by an audit, which is rare without holds.

// startReadsLocked reads, in a task, the watched znodes not seen for a session timeout. If there are too many,
// the task reads those seen longest ago. The others follow every T/6.
func (k *keeper) startReadsLocked(now time.Time) {
	s := k.s
	watches := k.watchesBeforeLocked(now.Add(-s.core.Period()*core.BeatsPerTimeout), (*Watch).lastSeenAt)
	s.core.OnLook(now, len(s.watches.byKey) > maxAudited)
	watches = watches[:min(len(watches), maxAudited)]
	if len(watches) == 0 || s.core.Phase >= core.Sealed {
		return
	}
	s.core.OnReadsSent(now)
	reads, t := make([]*call, len(watches)), s.gate.admitLocked(len(watches)) // now: the reads are for this connection
	for i, w := range watches {
		if reads[i] = s.watches.removeLocked(w); reads[i] == nil {
			reads[i] = w.rereadCall()
		}
	}
	s.backgroundLocked(func(ctx context.Context) { // answered at a disconnect at the latest
		s.gate.sendAdmitted(t, reads...)
		for i, w := range watches {
			if reads[i].Op == proto.OpRemoveWatches {
				s.watches.onRemoveAnswered(ctx, w, reads[i])
			} else {
				k.onReadAnswered(ctx, w, reads[i], now)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.core.OnReadsEnded(now)
		k.wake()
	})
}

// onReadAnswered waits for the answer to one of the reads, sent at sentAt. If the answer shows a change, the
// event of the change was lost, because the event precedes every answer showing the change. The watch
// fires. A refusal means that the znode is deleted, or may no longer be read. Then the event may be missing, so the watch
// fires as well.
func (k *keeper) onReadAnswered(ctx context.Context, w *Watch, read *call, sentAt time.Time) {
	s := k.s
	a, err := read.wait(ctx)
	isRead := err == nil || w.kind == core.WatchExists && errors.Is(err, zk.ErrNoNode)
	switch {
	case isRead && !w.core.HasMissed(w.latestChange(a)):
		s.mu.Lock()
		w.seenAt = sentAt
		s.mu.Unlock()
	case (isRead || zkutil.IsRefused(err)) && !w.HasFired():
		s.watches.fire(w.path, zk.EventNotWatching)
	}
}
