package cohort

import "time"

// stay is what a cohort knows when it chooses the next move of a tenure, while no caller inside holds the lock. The choice has no other input.
type stay struct {
	isAwaited     bool          // a caller waits inside
	hasServed     bool          // the first caller had the lock
	isRevoked     bool          // a peer asked for the lock
	isKnown       bool          // the directory was listed, and is unchanged since
	mayOthersWait bool          // a contender of another client
	passes        int           // since then
	waited        time.Duration // since then
	free          time.Duration // since the last caller left
}

// move is the next step of a tenure.
type move int

const (
	passOn move = iota // the next caller gets the lock
	linger             // the znode stays for a while, for another caller
	look               // the next caller waits until the directory is listed
	yield              // the znode is deleted
)

// next decides what a tenure does next. The first caller always gets the lock, and learns of a revocation that precedes it. The bounds count
// only while others may wait. Before a tenure ends at them, the directory is listed, because it may be that nobody waits.
func (b Bounds) next(s stay) move {
	isAtBound := s.mayOthersWait && (s.passes >= b.MaxPasses || s.waited >= b.MaxTenure)
	switch {
	case s.isAwaited && !s.hasServed:
		return passOn
	case s.isRevoked, isAtBound && s.isKnown:
		return yield
	case s.isAwaited && isAtBound:
		return look
	case s.isAwaited:
		return passOn
	case b.Linger > 0 && s.hasServed && (!s.mayOthersWait || !s.isKnown) && s.free < b.Linger:
		return linger
	default:
		return yield
	}
}
