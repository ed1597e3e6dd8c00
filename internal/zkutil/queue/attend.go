package queue

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// attendLocked starts the goroutine that attends a tenure, once.
func (t *tenure) attendLocked() {
	if !t.isAttended {
		t.isAttended = true
		t.c.s.Background(func(context.Context) { t.attend() }) //nolint:contextcheck // ends with the hold
	}
}

// attend learns whether contenders from elsewhere wait, and ends a tenure that lingers for too long. At its
// end it has the cohort go on without the tenure, which may be lost.
func (t *tenure) attend() {
	ctx := t.base.Context()
	for ctx.Err() == nil {
		epoch := t.c.s.Snapshot().Epoch
		if watch := t.lookForOthers(ctx); watch != nil {
			t.awaitChange(ctx, watch, epoch)
		} else {
			<-ctx.Done() // because others wait, the tenure will end soon
		}
	}
	_ = t.advance()
}

// lookForOthers lists the directory. The watch stands from then on; it is nil if contenders from elsewhere
// wait, and at the end of ctx.
func (t *tenure) lookForOthers(ctx context.Context) *session.Watch {
	s := t.c.s
	var queue []Contender
	watch, err := session.Repeat(ctx, s, func() (watch *session.Watch, err error) {
		queue, watch, err = session.ListAndWatch(ctx, s, t.q.Dir, t.q.parse)
		return watch, err
	})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		s.Log(slog.LevelWarn, "a cohort can't list its queue: it goes by its bounds", "path", t.q.Dir, "err", err)
	}
	if err != nil || slices.ContainsFunc(queue, t.isOther) {
		watch = nil
	}
	t.c.update(func() {
		t.isKnown = true
		if watch != nil {
			t.othersSince, t.passes = time.Time{}, 0
		}
	})
	_ = t.advance()
	return watch
}

// isOther reports whether a contender is from elsewhere.
func (t *tenure) isOther(c Contender) bool {
	_, own := zkutil.Split(t.base.Path())
	return session.ProtectionOf(c.Name) != session.ProtectionOf(own)
}

// awaitChange returns when contenders may have come. Until then it ends the tenure if it lingers for too long,
// and after a revocation.
func (t *tenure) awaitChange(ctx context.Context, watch *session.Watch, epoch uint64) {
	timer, revoked := time.NewTimer(time.Hour), t.base.Revoked()
	defer timer.Stop()
	for {
		t.resetTimer(timer)
		now := t.c.s.Snapshot()
		if now.Epoch != epoch || !t.c.s.IsConnected() {
			t.expectOthers(false)
			return
		}
		select {
		case <-watch.Fired():
			t.expectOthers(watch.TellsChange())
			return
		case <-revoked:
			revoked = nil
			_ = t.advance()
		case <-timer.C:
			_ = t.advance()
		case <-t.kick:
		case <-now.Changed:
		case <-ctx.Done():
			return
		}
	}
}

// resetTimer sets the timer to the end of the time for which the tenure may linger. While somebody inside
// holds the lock there is none: a kick comes when the tenure begins to linger.
func (t *tenure) resetTimer(timer *time.Timer) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	timer.Stop()
	if t.isAwaitingKick = t.isHeld; !t.isHeld {
		timer.Reset(time.Until(t.freeAt.Add(t.c.bounds.Linger)))
	}
}

// expectOthers notes that a contender from elsewhere may wait from now on. If one has come and nobody inside
// holds the lock, the tenure ends.
func (t *tenure) expectOthers(hasOneCome bool) {
	c := t.c
	c.mu.Lock()
	t.isKnown = false
	if t.othersSince.IsZero() {
		t.othersSince, t.passes = time.Now(), 0
	}
	isOver := hasOneCome && c.tenure == t && !t.isHeld
	if isOver {
		c.tenure = nil
		_ = c.advanceLocked() // for a caller that waits for a listing
	}
	c.mu.Unlock()
	if isOver {
		_ = t.end()
	}
}

// advance has the cohort make its next move. The error is that of a deletion which goes on.
func (t *tenure) advance() error {
	t.c.mu.Lock()
	over := t.c.advanceLocked()
	t.c.mu.Unlock()
	return over.end()
}
