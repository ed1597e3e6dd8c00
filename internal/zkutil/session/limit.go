package session

import (
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// holdLimit is the longest time for which a hold may be used. When it is over, the contexts of the entries end with
// ErrMaxHold. The hold itself stands until its last entry is left, as the znode does. The session keeps it proven, and no other client
// gets it while the work of its owner still runs. A leader's hold ends at once, because its znode stays until Vacate anyway.
//
// Guarded by Session.mu.
type holdLimit struct {
	at     time.Time   // by the clock of trust; zero: there is no limit
	timer  *time.Timer // nil: there is no limit. Stopped at the end of the hold
	isOver bool        // the contexts ended
}

// limitLocked limits a new hold. Timers stand still while the machine is suspended, so the entries are also compared with the
// clock of trust.
func (h *Hold) limitLocked(d time.Duration) {
	if d <= 0 {
		return
	}
	h.limit.at = h.s.clock.Now().Add(d)
	h.limit.timer = time.AfterFunc(d, func() {
		h.s.mu.Lock()
		defer h.s.mu.Unlock()
		h.endOverLimitLocked()
	})
}

func (l *holdLimit) stopLocked() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// errorLocked returns ErrMaxHold once the limit is over.
func (l *holdLimit) errorLocked() error {
	if l.isOver {
		return zkutil.ErrMaxHold
	}
	return nil
}

// earlierLocked returns until, or the limit if that is earlier.
func (l *holdLimit) earlierLocked(until time.Time) time.Time {
	if l.at.IsZero() || !until.IsZero() && until.Before(l.at) {
		return until
	}
	return l.at
}

// endedLocked returns the first reason why the hold can't be used any more, nil if it can.
func (h *Hold) endedLocked() error {
	if h.limit.isOver {
		return zkutil.ErrMaxHold
	}
	return h.core.Cause
}

func (h *Hold) endIfOverLimitLocked() {
	if !h.limit.at.IsZero() && !h.s.clock.Now().Before(h.limit.at) {
		h.endOverLimitLocked()
	}
}

// endOverLimitLocked ends the contexts of a hold whose limit is over.
func (h *Hold) endOverLimitLocked() {
	if h.endedLocked() != nil {
		return
	}
	s := h.s
	s.log.Log(slog.LevelWarn, "lease ended at its maximum hold; its znode stays until the work returns",
		"path", h.userPath, "token", h.token, "id", h.id(), "held", time.Since(h.grantedAt).Round(time.Millisecond))
	if h.core.KeepsNode {
		h.endLocked(zkutil.ErrMaxHold)
		return
	}
	h.limit.isOver = true
	for _, e := range h.entries {
		e.cancel(zkutil.ErrMaxHold)
		if traced := e.endTracedLocked(zkutil.ErrMaxHold); traced != nil {
			s.report.postTrace(traced.CallLeaseEnd)
		}
	}
}
