package session

import (
	"container/list"
	"time"
)

// Most contenders that lack bytes need no more than their directory has: they wait until others have left it. A large contender
// needs more, for example for many permits: bytes of other directories too. If newcomers took these one by one, they
// would never suffice. So they are collected. While a large contender waits:
//
//   - Free bytes are for the large contender that has waited longest, and for nobody else.
//   - A directory in which a contender waits keeps the bytes that its first waiter needs, and gives the rest away. So it
//     goes on, with fewer contenders at a time.
//   - The contender that has the missing bytes may wait in another directory before it gives them back, behind a hold that stays.
//     That would be a deadlock. So there are rounds, in which the next contender of each directory may pass. The first comes after a
//     minute, the others after pauses that double, so that rounds don't take all that is collected.

// firstRound is after how long others may pass for the first time.
const firstRound = time.Minute

// freeLocked takes bytes back from a directory, and gives them to those who wait: in the same directory
// first.
func (b *budget) freeLocked(r *room, bytes int) {
	r.saved += bytes
	b.saved += bytes
	b.releaseLocked(r, r.excess(b))
	b.admitLocked(r, b.mayTakeLocked(r))
	b.admitShortLocked()
	b.dropUnusedLocked(r)
}

// excess is how many of the saved bytes the directory need not keep.
func (r *room) excess(b *budget) int {
	keep := 0
	if p := r.firstWaiter(); p != nil && p.bytes <= r.bytes && b.large.Len() > 0 {
		keep = p.bytes
	}
	return min(r.saved, r.bytes-keep)
}

// releaseLocked makes saved bytes free.
func (b *budget) releaseLocked(r *room, bytes int) {
	r.saved -= bytes
	b.saved -= bytes
	b.addLocked(r, -bytes)
}

// admitShortLocked gives free bytes to the directories that lack some.
func (b *budget) admitShortLocked() {
	for e := b.large.Front(); e != nil; e = b.large.Front() {
		b.admitLocked(e.Value.(*room), true)
		if e == b.large.Front() {
			return
		}
	}
	if b.saved > 0 {
		b.shareLocked(nil)
		return
	}
	for e := b.short.Front(); e != nil && b.fitsLocked(leastBytes); {
		next := e.Next()
		r := e.Value.(*room)
		b.admitLocked(r, b.mayTakeLocked(r))
		e = next
	}
}

// shareLocked makes all saved bytes free, and gives a place to the first waiter of each directory that lacks bytes, as far as
// they go. If they are collected for somebody, the others pass.
func (b *budget) shareLocked(collector *list.Element) {
	for _, r := range b.rooms {
		b.releaseLocked(r, r.saved)
	}
	for e := b.short.Front(); e != nil; {
		next := e.Next()
		r := e.Value.(*room)
		mayPass := collector != nil && collector != r.large
		b.admitLocked(r, mayPass || b.mayTakeLocked(r))
		e = next
	}
}

// mayTakeLocked reports whether free bytes are for a directory.
func (b *budget) mayTakeLocked(r *room) bool { return b.large.Len() == 0 || b.large.Front() == r.large }

// isFreeLocked reports whether bytes are free for anybody.
func (b *budget) isFreeLocked(bytes int) bool { return b.large.Len() == 0 && b.fitsLocked(bytes) }

// admitLocked gives a place to the first of those who wait in a directory, if one is free. It is paid for by what the directory
// has saved, and if that may be with free bytes.
func (b *budget) admitLocked(r *room, mayTake bool) {
	p := r.firstWaiter()
	if p != nil && r.isOpen(b) && (p.bytes <= r.saved || mayTake && b.fitsLocked(p.bytes-r.saved)) {
		b.releaseLocked(r, r.saved)
		r.waiters.Remove(p.inRoom)
		p.inRoom = nil
		b.giveLocked(r, p)
		close(p.given)
	}
	b.noteShortLocked(r)
}

// firstWaiter returns the first of those who wait in a directory, nil if there is none.
func (r *room) firstWaiter() *Place {
	if e := r.waiters.Front(); e != nil {
		return e.Value.(*Place)
	}
	return nil
}

// isOpen reports whether bytes are all that the first waiter may lack.
func (r *room) isOpen(b *budget) bool { return r.calls < b.contenders && r.unsent == 0 }

// noteShortLocked notes whether the first waiter of a directory, which has got no place, lacks bytes.
func (b *budget) noteShortLocked(r *room) {
	p := r.firstWaiter()
	isShort := p != nil && r.isOpen(b)
	r.short = noteIn(&b.short, r, r.short, isShort)
	r.large = noteIn(&b.large, r, r.large, isShort && p.bytes > r.bytes)
	if first := b.large.Front(); first != b.collector {
		b.collectLocked(first)
	}
}

// noteChangeLocked is noteShortLocked for a directory that has got bytes, or another waiter. If bytes are no longer collected
// for its first waiter because of that, others get them.
func (b *budget) noteChangeLocked(r *room) {
	before := b.collector
	if b.noteShortLocked(r); b.collector != before {
		b.admitShortLocked()
	}
}

// noteIn adds a room to a list, or removes it. e is its element, nil if it is not there.
func noteIn(l *list.List, r *room, e *list.Element, isIn bool) *list.Element {
	switch {
	case isIn && e == nil:
		return l.PushBack(r)
	case !isIn && e != nil:
		l.Remove(e)
		return nil
	default:
		return e
	}
}

// collectLocked begins to collect bytes for the first of large, nil if there is none.
func (b *budget) collectLocked(first *list.Element) {
	b.collector = first
	if b.rounds != nil {
		b.rounds.Stop()
	}
	if first != nil {
		b.pause = firstRound
		b.rounds = time.AfterFunc(b.pause, func() { b.letOthersPass(first) })
	}
}

// letOthersPass is a round, unless bytes are no longer collected for the same directory.
func (b *budget) letOthersPass(collector *list.Element) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if collector != b.collector {
		return
	}
	b.shareLocked(collector)
	b.admitShortLocked()
	if collector == b.collector {
		b.pause *= 2
		b.rounds.Reset(b.pause)
	}
}
