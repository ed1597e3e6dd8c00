package cohort

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// attendLocked starts the goroutine that attends a tenure, once.
func (t *tenure) attendLocked() {
	if !t.isAttended {
		t.isAttended = true
		t.c.s.Background(func(context.Context) { t.attend() }) //nolint:contextcheck // ends with the hold
	}
}

// attend finds out whether contenders from elsewhere wait, and ends a tenure that lingers for too long. At the end of the tenure, which may be
// a loss, attend has the cohort go on.
func (t *tenure) attend() {
	ctx := t.base.Context()
	for ctx.Err() == nil {
		epoch := t.c.s.Snapshot().Epoch
		if watch := t.lookForOthers(ctx); watch != nil {
			t.awaitChange(ctx, watch, epoch)
			t.c.s.ReleaseWatch(watch)
		} else {
			<-ctx.Done() // because others wait, the tenure will end soon
		}
	}
	_ = t.advance()
}

// lookForOthers lists the directory, and returns a watch from that listing on. The watch is nil if contenders from elsewhere wait, and after
// the end of ctx.
func (t *tenure) lookForOthers(ctx context.Context) *session.Watch {
	s := t.c.s
	contenders, watch, err := t.q.ListAndWatch(ctx)
	if ctx.Err() != nil {
		s.ReleaseWatch(watch)
		return nil
	}
	if err != nil {
		s.Log(slog.LevelWarn, "a cohort can't list its queue: it goes by its bounds", "path", t.q.Dir, "err", err)
	}
	if err != nil || slices.ContainsFunc(contenders, t.isOther) {
		s.ReleaseWatch(watch)
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
func (t *tenure) isOther(c queue.Contender) bool {
	_, own := zkutil.Split(t.base.Path())
	return zkutil.ProtectionOf(c.Name) != zkutil.ProtectionOf(own)
}

// awaitChange returns when contenders may have come. Until then, awaitChange ends the tenure if the tenure lingers for too long, and after a
// revocation.
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

// resetTimer sets the timer to the end of the time for which the tenure may linger. While somebody inside holds the lock, no timer runs: a
// kick comes when the tenure begins to linger.
func (t *tenure) resetTimer(timer *time.Timer) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	timer.Stop()
	if t.isAwaitingKick = t.isHeld; !t.isHeld {
		timer.Reset(time.Until(t.freeAt.Add(t.c.bounds.Linger)))
	}
}

// expectOthers records that a contender from elsewhere may wait from now on. If a contender has come and nobody inside holds the lock, the
// tenure ends.
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

// advance has the cohort make its next move. An error comes from a deletion that the session goes on repeating.
func (t *tenure) advance() error {
	t.c.mu.Lock()
	over := t.c.advanceLocked()
	t.c.mu.Unlock()
	return over.end()
}
