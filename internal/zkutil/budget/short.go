package budget

// A contender that lacks bytes waits until others have left its directory. A waiter never depends on other directories,
// because each directory always has as many bytes as its most demanding waiter needs: further freed bytes go to
// the free ones, and a request that needs more reserves the difference at once, or fails. So once the earlier
// contenders of its directory have left, the first waiter has its bytes, whatever happens in other directories. A
// waiter that waited for the bytes of other directories could wait for ever: newcomers would take these bytes one by
// one, or their owner would wait for a lock of the waiter.

// enqueueLocked makes a reservation wait, and gives its directory the bytes that the directory lacks for the reservation.
func (b *Budget) enqueueLocked(d *directory, r *Reservation) {
	if missing := r.bytes - d.bytes; missing > 0 {
		b.saveLocked(d, missing)
		b.addLocked(d, missing)
	}
	d.most = max(d.most, r.bytes)
	r.inQueue = d.waiters.PushBack(r)
	b.updateShortLocked(d)
}

// dequeue removes a waiting reservation. The caller has to free the bytes that the directory need no longer keep.
func (d *directory) dequeue(r *Reservation) {
	d.waiters.Remove(r.inQueue)
	if r.bytes < d.most {
		return
	}
	before := d.most
	d.most = 0
	for e := d.waiters.Front(); e != nil && d.most < before; e = e.Next() { // one step while all need the same
		d.most = max(d.most, e.Value.(*Reservation).bytes)
	}
}

// saveLocked keeps bytes of a directory for the waiters there.
func (b *Budget) saveLocked(d *directory, bytes int) {
	d.saved += bytes
	b.saved += bytes
}

// releaseLocked frees saved bytes.
func (b *Budget) releaseLocked(d *directory, bytes int) {
	b.saveLocked(d, -bytes)
	b.addLocked(d, -bytes)
}

// freeLocked takes bytes back from a contender of a directory, and gives them to waiting calls, first to calls in the same
// directory.
func (b *Budget) freeLocked(d *directory, bytes int) {
	b.saveLocked(d, bytes)
	b.updateLocked(d)
	b.dropUnusedLocked(d)
}

// updateLocked admits the calls that need not wait any longer after a change of a directory.
func (b *Budget) updateLocked(d *directory) {
	b.admitLocked(d)
	b.admitShortLocked()
}

// admitLocked grants a reservation to the first waiter of a directory, if the directory may admit a call, and frees the
// bytes that the directory need not keep. The bytes of the reservation come from the saved bytes, then from the free ones.
func (b *Budget) admitLocked(d *directory) {
	r := d.firstWaiter()
	if r != nil && d.isOpen(b) && (r.bytes <= d.saved || b.fitsLocked(r.bytes-d.saved)) {
		d.dequeue(r)
		r.inQueue = nil
		b.releaseLocked(d, min(d.saved, r.bytes))
		b.giveLocked(d, r)
		close(r.given)
	}
	b.releaseLocked(d, min(d.saved, d.bytes-d.most))
	b.updateShortLocked(d)
}

// admitShortLocked gives free bytes to the directories whose first waiter lacks bytes, the longest-waiting first.
func (b *Budget) admitShortLocked() {
	for e := b.short.Front(); e != nil && (b.saved > 0 || b.fitsLocked(leastBytes)); {
		next, before := e.Next(), b.used
		b.admitLocked(e.Value.(*directory))
		if e = next; b.used < before { // the freed bytes may be enough for an earlier one
			e = b.short.Front()
		}
	}
}

// firstWaiter returns the reservation that has waited longest in a directory, nil if none waits.
func (d *directory) firstWaiter() *Reservation {
	if e := d.waiters.Front(); e != nil {
		return e.Value.(*Reservation)
	}
	return nil
}

// isOpen reports whether the first waiter can lack nothing but bytes.
func (d *directory) isOpen(b *Budget) bool { return d.calls < b.contenders && d.unsent == 0 }

// updateShortLocked updates the list of directories short of bytes.
func (b *Budget) updateShortLocked(d *directory) {
	switch isShort := d.waiters.Len() > 0 && d.isOpen(b); {
	case isShort && d.short == nil:
		d.short = b.short.PushBack(d)
	case !isShort && d.short != nil:
		b.short.Remove(d.short)
		d.short = nil
	}
}
