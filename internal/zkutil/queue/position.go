package queue

// turn is the event at which the turn of a waiter comes.
type turn int

const (
	turnAtListing    turn = iota // a listing from after the end of the blocker shows whose turn has come
	turnNear                     // the same, but the listing is likely to show the waiter's turn: nobody else was ahead
	turnAfterAll                 // the end of the blocker and of everybody ahead of the blocker
	turnAfterBlocker             // the end of the blocker, because nobody is ahead of the blocker
)

// position is the position of a waiter in its queue, from the latest look.
type position struct {
	turn     turn // meaningless without a blocker
	isBehind bool // directly behind the blocker
	isFirst  bool // nobody is ahead
}

// positionOf returns the position of the contender at index own, and the index of its blocker, or −1 if the contender may proceed.
func (q *Queue) positionOf(queue []Contender, own int) (p position, blocker int) {
	p.isFirst = own == 0
	if blocker = q.Rule(queue, own); blocker < 0 {
		return p, blocker
	}
	p.isBehind = blocker == own-1
	isOutOfOrder, _ := checkSequence(queue[0].sequence)
	isLast := q.Rule(queue[blocker+1:], own-blocker-1) < 0 // nobody behind the blocker keeps us out
	switch needsNoListing := !q.AlwaysList && !isOutOfOrder; {
	case !isLast:
		p.turn = turnAtListing
	case needsNoListing && blocker == 0:
		p.turn = turnAfterBlocker
	case needsNoListing:
		p.turn = turnAfterAll
	case blocker == 0:
		p.turn = turnNear
	}
	return p, blocker
}

// needsNoListing reports whether the turn comes without a listing, when the blocker and everybody ahead of the blocker have gone.
func (p position) needsNoListing() bool { return p.turn >= turnAfterAll }

// hasOnlyBlocker reports whether the turn comes without a listing, when the blocker has gone.
func (p position) hasOnlyBlocker() bool { return p.turn == turnAfterBlocker }

// isTurnNear reports whether the turn is likely to come when the blocker has gone.
func (p position) isTurnNear() bool { return p.turn == turnNear || p.turn == turnAfterBlocker }

// advanced returns the position of a waiter whose turn has come without a listing.
func (p position) advanced() position {
	p.isFirst = p.isBehind
	return p
}
