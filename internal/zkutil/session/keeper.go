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
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trust"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// keeper watches the clock for the session, and sends the proofs. Guarded by Session.mu.
type keeper struct {
	s      *Session
	wakeAt time.Time     // when to decide next; zero: at the next kick
	kick   chan struct{} // wakes the keeper; capacity 1

	users int                 // number of holds, waits and requests
	nodes map[string]struct{} // znodes of this session, checked by heartbeats
}

func newKeeper() keeper { return keeper{kick: make(chan struct{}, 1), nodes: map[string]struct{}{}} }

// keep is the goroutine that watches the clock for the session, and carries out the plans of
// trust.Ledger.Decide.
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
		nextAt, hung := k.tick(s.clock.Now())
		if hung != nil {
			s.Log(slog.LevelWarn, "the server does not answer: trying another one", "server", hung.Server)
			s.Background(func(context.Context) { // which may take its time
				s.wire.Dialer.NoteSilence(hung.Server)
				hung.Abandon()
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
func (k *keeper) tick(now time.Time) (nextAt time.Time, hung *wire.Line) {
	s := k.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.NotePause(now, k.wakeAt)
	p := s.ledger.Decide(k.factsLocked(now))
	if p.EndHolds {
		s.holds.endAllLocked(zkutil.ErrSessionLost)
		if p.EnterLost {
			s.link.enterStateLocked(Lost, errUnproven)
		}
		p = s.ledger.Decide(k.factsLocked(now))
	}
	if p.EnterLost {
		s.link.enterStateLocked(Lost, errUnproven)
	}
	if p.LeaveServer {
		hung = k.leaveServerLocked(now)
	}
	if p.Beat || p.Audit {
		k.startBeatLocked(now, p.Beat, p.Audit)
	}
	if p.Read {
		k.startReadsLocked(now)
	}
	k.wakeAt = p.NextAt
	return p.NextAt, hung
}

// leaveServerLocked returns the connection to leave, nil if adopted.
func (k *keeper) leaveServerLocked(now time.Time) (hung *wire.Line) {
	s := k.s
	s.ledger.OnServerLeft(now, len(s.holds.byPath) > 0)
	if s.wire == nil {
		return nil
	}
	return s.wire.Line()
}

// factsLocked collects the facts for a decision. factsLocked asks the wire only where a heartbeat could be
// sent, so that a wire hanging in a reconnect can't keep the keeper from ending holds.
func (k *keeper) factsLocked(now time.Time) trust.Facts {
	s := k.s
	f := trust.Facts{
		Now: now, IsLost: s.link.state == Lost, IsSuspended: s.link.state == Suspended, IsConnected: s.link.isConnected, ChangedAt: s.link.changedAt,
		IsInUse: k.users > 0, Holds: len(s.holds.byPath),
	}
	if s.wire != nil && f.IsConnected && f.IsInUse {
		f.Addresses, f.BytesCameAt = s.wire.Dialer.Addresses(), s.wire.LastByteAt()
		f.WriteAnsweredAt, f.IsAwaitingWrite = s.wire.LastWriteAnsweredAt(), s.wire.HasProofInFlight()
		f.ReadSentAt = s.wire.ReadSentAt()
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

// beatPeriod returns the time between two heartbeats.
func (k *keeper) beatPeriod() time.Duration {
	s := k.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.Period()
}

// retainLocked marks the session as in use.
func (k *keeper) retainLocked() {
	s := k.s
	if k.users == 0 {
		k.noteInUse(true)
		now := s.clock.Now()
		s.ledger.OnUse(now)
		k.wakeByLocked(now.Add(s.ledger.Period()))
	}
	k.users++
}

// releaseLocked ends a retainLocked.
func (k *keeper) releaseLocked() {
	s := k.s
	if k.users--; k.users > 0 {
		return
	}
	k.noteInUse(false)
	if s.life.isClosingLocked() {
		s.link.announceLocked() // Close of an adopted connection waits for the last release
	}
}

// noteInUse notifies the wire whether anything is held, awaited or asked for.
func (k *keeper) noteInUse(isInUse bool) {
	s := k.s
	if s.wire != nil {
		s.wire.SetInUse(isInUse)
	}
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
	if w.ID != s.link.id {
		return
	}
	answered := trust.Write{SentAt: w.At, CameAt: s.clock.Now(), IsCommitted: err == nil}
	if w.Line != nil {
		answered.Line = w.Line
	}
	if !s.ledger.OnWriteAnswered(answered, k.wakeAt) {
		return
	}
	s.proofs.onProvenLocked()
	if s.wire != nil {
		s.wire.DropAbandoned(w.At)
	}
	if s.link.state == Lost && s.link.isConnected {
		s.link.enterStateLocked(Reconnected, nil)
	}
}

// isTrustedLocked reports whether a hold may stand now. Without a known timeout, being connected has to be
// enough.
func (k *keeper) isTrustedLocked() bool {
	s := k.s
	if s.ledger.Timeout() == 0 {
		return s.link.isConnected && s.link.conn.State() == zk.StateHasSession
	}
	return s.ledger.Stands(s.clock.Now())
}

// A heartbeat is a transaction that checks znodes and changes nothing. The quorum commits the transaction,
// which proves the session.
//
// An audit is a heartbeat that checks the watched znodes, at the leader, because the event of a deletion may
// never come. A server that has lost a transaction continues to show a deleted znode (ZOOKEEPER-4785). A server
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
	wasRefused := s.ledger.NeedsPlainBeat()
	if isAuditDue && (!isBeatDue || !wasRefused) {
		s.ledger.OnAudit(now, rand.Float64())
		watches := k.watchesBeforeLocked(now.Add(-s.ledger.Period()), (*Watch).lastCheckedAt)
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
	epoch := s.link.epoch
	s.ledger.OnBeatSent(now)
	if s.life.isSealedLocked() {
		return
	}
	c, t := checkCall(paths), s.gate.admitLocked(1) // now: the heartbeat is for this connection
	s.backgroundLocked(func(ctx context.Context) {  // the answer comes at a disconnect at the latest
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
				s.ledger.OnAuditRefused()
			}
			if err != nil && (refusedPath == "" || w.path == refusedPath) {
				break
			}
			w.checkedAt = now
		}
		s.ledger.OnBeatEnded(now, isRefused)
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
// path ends, if the znode is gone, and the watches fire. The client then leaves a server that still shows a
// deleted znode, unless the connection is newer than epoch, because the new server may only be behind. czxid is
// that of the znode that was watched, 0 if unknown: another znode at the path has been created since.
func (k *keeper) onCheckRefused(ctx context.Context, path string, err error, epoch uint64, czxid int64) {
	s := k.s
	isGone := errors.Is(err, zk.ErrNoNode)
	s.mu.Lock()
	if hold := s.holds.byPath[path]; isGone && hold != nil {
		hold.endAsDeletedLocked()
	}
	s.mu.Unlock()
	s.watches.fire(path, zk.EventNotWatching)
	if !isGone || s.wire == nil {
		return
	}
	line := s.wire.Line()
	n, err := s.gate.readNode(ctx, path)
	if err != nil || czxid != 0 && n.Stat.Czxid != czxid {
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

// A session reads every watched znode once per session timeout, all in one write to the socket, to catch lost
// notifications. The reads cost the quorum nothing. While nothing is held, the client leaves a server that
// answers no reads. Only a server that continues to show deleted znodes has to be checked against the leader,
// by an audit, which is rare without holds.

// startReadsLocked reads, in a task, the watched znodes not seen for a session timeout. If there are too many,
// the task reads those seen longest ago. The others follow every T/6.
func (k *keeper) startReadsLocked(now time.Time) {
	s := k.s
	watches := k.watchesBeforeLocked(now.Add(-s.ledger.Period()*trust.BeatsPerTimeout), (*Watch).lastSeenAt)
	s.ledger.OnLook(now, len(s.watches.byKey) > maxAudited)
	watches = watches[:min(len(watches), maxAudited)]
	if len(watches) == 0 || s.life.isSealedLocked() {
		return
	}
	s.ledger.OnReadsSent(now)
	reads, t := make([]*call, len(watches)), s.gate.admitLocked(len(watches)) // now: the reads are for this connection
	for i, w := range watches {
		if s.watches.mayRemoveLocked(w) {
			reads[i] = w.removeCallLocked()
		} else {
			reads[i] = w.rereadCall()
		}
	}
	s.backgroundLocked(func(ctx context.Context) { // the answers come at a disconnect at the latest
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
		s.ledger.OnReadsEnded(now)
		k.wake()
	})
}

// rereadCall returns a read, without a watch, whose answer shows whether the watch has fired.
func (w *Watch) rereadCall() *call {
	if w.kind == wire.WatchData {
		return readCall(w.path)
	}
	return &call{Request: wire.Request{Op: proto.OpExists, Path: w.path}} // for children as well: no list, and no permission to list
}

// latestChange returns, from the stat in an answer, the zxid of the latest change of the kind for which the
// watch fires.
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

// onReadAnswered waits for the answer to one of the reads, sent at sentAt. If the answer shows a change, the
// event of the change was lost, because an event comes ahead of every answer showing the change: the watch
// fires. A refusal means that the znode is gone, or may no longer be read. Then no event may come, so the watch
// fires as well.
func (k *keeper) onReadAnswered(ctx context.Context, w *Watch, read *call, sentAt time.Time) {
	s := k.s
	a, err := read.wait(ctx)
	isRead := err == nil || w.kind == wire.WatchExists && errors.Is(err, zk.ErrNoNode)
	switch {
	case isRead && w.latestChange(a) == w.changedBy:
		s.mu.Lock()
		w.seenAt = sentAt
		s.mu.Unlock()
	case (isRead || zkutil.IsRefused(err)) && !w.HasFired():
		s.watches.fire(w.path, zk.EventNotWatching)
	}
}
