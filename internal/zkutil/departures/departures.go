package departures

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Set holds the departing contenders of one session. All methods may be called concurrently.
type Set struct {
	limit   time.Duration
	closing <-chan struct{}

	mu           sync.Mutex          // protects the fields below, and those of each Departure
	byProtection map[string]struct{} // the departures under way
	ended        int                 // number of ended departures
	changes      zkutil.Changes      // announced when a departure ends
}

// NewSet returns the set of a session. limit bounds each Wait. closing is closed when the session closes.
func NewSet(limit time.Duration, closing <-chan struct{}) *Set {
	return &Set{limit: limit, closing: closing, byProtection: map[string]struct{}{}}
}

// Departure is the deletion of one contender. A contender has at most one departure at a time, and a znode without protection
// has none.
type Departure struct {
	Set  *Set
	Name string // of the contender's znode; the text behind its protection may be missing

	isUnderWay, hasEnded bool
}

// Begin adds the contender to the set. After End, Begin does nothing.
func (d *Departure) Begin() {
	s, protection := d.Set, zkutil.ProtectionOf(d.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, isKnown := s.byProtection[protection]; isKnown || protection == "" || d.hasEnded {
		return
	}
	s.byProtection[protection] = struct{}{}
	d.isUnderWay = true
}

// End removes the contender from the set, if Begin added it, and wakes each Wait.
func (d *Departure) End() {
	s := d.Set
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.isUnderWay {
		delete(s.byProtection, zkutil.ProtectionOf(d.Name))
		s.ended++
		s.changes.AnnounceLocked()
	}
	d.isUnderWay, d.hasEnded = false, true
}

// Wait is the wait of one try, which may not wait for other contenders, for the departures of its own session.
type Wait struct {
	set   *Set
	ended int       // number of departures that ended before the latest listing was requested
	until time.Time // zero: there was no wait yet
}

// NewWait has to be called before the first listing of a try is requested.
func (s *Set) NewWait() Wait {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Wait{set: s, ended: s.ended}
}

// Await is called for a listing that refuses the try. It reports whether another listing may admit the try, because a departure
// ended meanwhile. Await first waits for the end of a departure, unless isRefused reports that other contenders refuse the try
// as well. An error means that ctx ended or the session is closed.
func (w *Wait) Await(ctx context.Context, isRefused func(isDeparting func(name string) bool) bool) (mayListAgain bool, err error) {
	s := w.set
	s.mu.Lock()
	hasEnded, departing, changed := s.ended > w.ended, maps.Clone(s.byProtection), s.changes.ChangedLocked()
	w.ended = s.ended
	s.mu.Unlock()
	if w.until.IsZero() {
		w.until = time.Now().Add(s.limit)
	}
	isDeparting := func(name string) bool {
		_, ok := departing[zkutil.ProtectionOf(name)]
		return ok
	}
	switch {
	case !time.Now().Before(w.until):
		return false, nil
	case hasEnded:
		return true, nil
	case len(departing) == 0 || isRefused(isDeparting):
		return false, nil
	}
	limit := time.NewTimer(time.Until(w.until))
	defer limit.Stop()
	select {
	case <-changed:
		return true, nil
	case <-limit.C:
		return false, nil
	case <-ctx.Done():
		return false, zkutil.Interrupted(ctx, nil)
	case <-s.closing:
		return false, zkutil.ErrClosed
	}
}
