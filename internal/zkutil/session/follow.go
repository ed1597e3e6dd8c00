package session

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Revocation is the text that a peer writes into a contender's znode to ask for its lease, the same
// as Curator's.
const Revocation = "__REVOKE__"

// WatchOwnAfter is how long a hold is not followed, and mostly has no watch on its own znode: most are over by then.
// A deletion or a revocation is told within 10 ms on a quick line.
const WatchOwnAfter = 6 * time.Millisecond

// newHolds are the holds that are not followed yet, the earliest first. One timer does for all, because each change
// of a timer may wake another thread. Guarded by Session.mu.
type newHolds struct {
	claimed []claimed
	timer   *time.Timer // runs while there are any; some may have ended
}

// claimed is a hold, and what was known of its znode.
type claimed struct {
	hold  *Hold
	own   *Watch // nil: none is set
	epoch uint64
}

// followSoonLocked has the znode of a new hold followed once it has lasted for WatchOwnAfter.
func (h *Hold) followSoonLocked(c Claim) {
	n := &h.s.newHolds
	n.claimed = append(n.claimed, claimed{h, c.Own, c.Epoch})
	switch {
	case len(n.claimed) > 1:
	case n.timer == nil:
		n.timer = time.AfterFunc(WatchOwnAfter, h.s.followNewHolds) // stopped in finishClosing
	default:
		n.timer.Reset(WatchOwnAfter)
	}
}

// stopLocked stops the timer.
func (n *newHolds) stopLocked() {
	if n.timer != nil {
		n.timer.Stop()
	}
}

// followNewHolds follows the holds that have lasted for WatchOwnAfter.
func (s *Session) followNewHolds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &s.newHolds
	young := n.claimed[:0]
	for _, c := range n.claimed {
		switch {
		case c.hold.cause != nil:
		case time.Since(c.hold.grantedAt) < WatchOwnAfter:
			young = append(young, c)
		default:
			c.hold.followLocked(c.own, c.epoch)
		}
	}
	clear(n.claimed[len(young):])
	if n.claimed = young; len(young) > 0 {
		n.timer.Reset(WatchOwnAfter - time.Since(young[0].hold.grantedAt))
	}
}

// followLocked begins to follow the znode of a hold.
func (h *Hold) followLocked(own *Watch, epoch uint64) {
	ctx, end := context.WithCancel(h.s.life.tasksCtx)
	h.endReads = end
	h.s.backgroundLocked(func(context.Context) { h.followOwnNode(ctx, own, epoch) })
}

// followOwnNode reads the znode again whenever it may have changed, for a revocation, or a deletion
// whose event was lost; at once without a watch. It ends with the hold. An event of the deletion ends the
// hold elsewhere: see Session.fireWatches.
func (h *Hold) followOwnNode(ctx context.Context, own *Watch, epoch uint64) {
	s := h.s
	for {
		now := s.Snapshot()
		if own != nil && now.Epoch == epoch {
			select {
			case <-own.fired:
			case <-now.Changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		epoch = s.Snapshot().Epoch // the watch may have fired because of a new connection
		var n Node
		var err error
		n, own, err = h.readOwn(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.mu.Lock()
			h.endAsDeletedLocked()
			s.mu.Unlock()
			return
		}
		s.mu.Lock()
		if h.cause == nil {
			s.live.nodes[h.path] = struct{}{}
		}
		if string(n.Data) == Revocation {
			h.noteRevocationLocked()
		}
		s.mu.Unlock()
	}
}

// readOwn reads the znode until that succeeds, the znode is gone, or the hold ends. It tries at least
// as often as heartbeats are sent, because while the znode can't be read its deletion is noticed here
// alone.
func (h *Hold) readOwn(ctx context.Context) (n Node, own *Watch, err error) {
	hasWarned := false
	policy, period := h.s.cfg.Retry.Patient(), h.s.beatPeriod()
	policy.InitialInterval, policy.MaxInterval = min(policy.InitialInterval, period), min(policy.MaxInterval, period)
	mayExist := func(err error) bool { return !errors.Is(err, zk.ErrNoNode) }
	n, err = zkutil.RepeatWhile(ctx, policy, mayExist, func() (n Node, err error) {
		n, own, err = h.s.readAndWatch(ctx, h.path)
		if zkutil.IsRefused(err) && mayExist(err) && !hasWarned {
			hasWarned = true
			h.s.Log(refusalLevel(err), "own znode can't be read, will be repeated: no revocations until then", "znode", h.path, "err", err)
		}
		return n, err
	})
	return n, own, err
}

// endAsDeletedLocked ends the hold, whose znode is gone. If its trust has run out, the cause is the
// loss of the session, because the servers delete the znodes of a session that they end.
func (h *Hold) endAsDeletedLocked() {
	h.endIfUntrustedLocked()
	h.endLocked(zkutil.ErrNodeDeleted)
}

func (h *Hold) noteRevocationLocked() {
	if h.isRevoked {
		return
	}
	h.isRevoked = true
	if h.revokedDone != nil {
		close(h.revokedDone)
	}
	if listener := h.listenerLocked(); listener != nil {
		listener()
	}
}
