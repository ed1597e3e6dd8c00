package queue

// turn is the event that gives a waiter its turn.
type turn int

const (
	turnAtListing    turn = iota // a listing made after the end of the blocker shows whose turn it is
	turnNear                     // the same, but the listing probably shows the waiter's turn, as no other contender was ahead
	turnAfterAll                 // the end of the blocker and of all contenders ahead of it
	turnAfterBlocker             // the end of the blocker, which is first
)

// position is the position of a waiter in its queue, by the latest list.
type position struct {
	turn     turn // meaningless without a blocker
	isBehind bool // directly behind the blocker
	isFirst  bool // no contender is ahead
}

// positionOf returns the position of the contender at index own, and the index of its blocker, or −1 if the contender may proceed.
func (q *Queue) positionOf(queue []Contender, own int) (p position, blocker int) {
	p.isFirst = own == 0
	if blocker = q.Rule(queue, own); blocker < 0 {
		return p, blocker
	}
	p.isBehind = blocker == own-1
	isOutOfOrder, _ := checkSequence(queue[0].sequence)
	switch needsNoListing := !q.AlwaysList && !isOutOfOrder; {
	case needsNoListing && blocker == 0:
		p.turn = turnAfterBlocker
	case needsNoListing:
		p.turn = turnAfterAll
	case blocker == 0:
		p.turn = turnNear
	}
	return p, blocker
}

// needsNoListing reports whether the waiter needs no listing once the blocker and all contenders ahead of it are deleted.
func (p position) needsNoListing() bool { return p.turn >= turnAfterAll }

// hasOnlyBlocker reports whether the waiter needs no listing once the blocker is deleted.
func (p position) hasOnlyBlocker() bool { return p.turn == turnAfterBlocker }

// isTurnNear reports whether the waiter probably has its turn once the blocker is deleted.
func (p position) isTurnNear() bool { return p.turn == turnNear || p.turn == turnAfterBlocker }
